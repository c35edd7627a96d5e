package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func inside(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestCheck_refusesWhatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), "", 0o600)
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

func TestCheck_changesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.html")
	if err := Check(path); err != nil || len(inside(t, dir)) != 0 {
		t.Errorf("error %v, and there is %v", err, inside(t, dir))
	}
	put(t, path, "before", 0o600)
	err := Check(path)
	if text, _ := os.ReadFile(path); err != nil || string(text) != "before" || len(inside(t, dir)) != 1 {
		t.Errorf("error %v, the file has %q, and there is %v", err, text, inside(t, dir))
	}
}

func TestSave_replacesTheFileAndKeepsItsMode(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "r.html"), filepath.Join(dir, "link.html")
	if err := Save(path, comparison()); err != nil {
		t.Fatal(err)
	}
	put(t, path, "before", 0)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("r.html", link); err != nil {
		t.Fatal(err)
	}
	if err := Save(link, comparison()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != write(t, comparison()) {
		t.Errorf("error %v, the file has %q", err, text)
	}
	if about, err := os.Lstat(path); err != nil || about.Mode() != 0o666 {
		t.Errorf("error %v, the mode is %v", err, about.Mode())
	}
	if about, err := os.Lstat(link); err != nil || about.Mode().Type() != os.ModeSymlink || len(inside(t, dir)) != 2 {
		t.Errorf("error %v, the link is %v, and there is %v", err, about.Mode(), inside(t, dir))
	}
}

func TestSave_leavesTheFileIfItFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.html")
	put(t, path, "before", 0o600)
	file, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("half of it"); err != nil {
		t.Fatal(err)
	}
	if err := file.discard(); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "before" || len(inside(t, dir)) != 1 {
		t.Errorf("the file has %q, and there is %v", text, inside(t, dir))
	}
}
