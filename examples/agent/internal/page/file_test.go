package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck_refusesWhatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ path, want string }{
		"no name":              {"", "it names no file"},
		"a directory":          {dir, "is a directory"},
		"no such directory":    {filepath.Join(dir, "missing", "r.html"), "there is no directory " + filepath.Join(dir, "missing")},
		"a file on the way":    {filepath.Join(dir, "file", "r.html"), "not a directory"},
		"not an ordinary file": {os.DevNull, "no ordinary file"},
	} {
		if err := Check(test.path); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.want)
		}
	}
}

func TestSave_replacesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.html")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		call func() error
		want string
	}{
		{func() error { return Check(path) }, "before"},
		{func() error { return Save(path, comparison()) }, write(t, comparison())},
	} {
		err := step.call()
		text, _ := os.ReadFile(path)
		if files, _ := os.ReadDir(filepath.Dir(path)); err != nil || string(text) != step.want || len(files) != 1 {
			t.Errorf("error %v, the file has %q, and there is %v", err, text, files)
		}
	}
}
