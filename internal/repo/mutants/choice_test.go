package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The packages a to d of a repository have a mutant each. Its first commit is two days old.
func TestChoose(t *testing.T) {
	// A hook of git that runs tests sets these.
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		t.Setenv(name, "")
		_ = os.Unsetenv(name)
	}
	root := t.TempDir()
	git := func(age time.Duration, args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost"}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_COMMITTER_DATE="+time.Now().Add(-age).Format(time.RFC3339))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	choose := func(dir, since string) (names string) {
		mutants, err := choice{only: regexp.MustCompile(""), since: since}.choose(dir)
		if err != nil {
			return err.Error()
		}
		for _, m := range mutants {
			names += m.name
		}
		return names
	}
	check := func(since, want string) {
		t.Helper()
		if got := choose(root, since); got != want {
			t.Errorf("since %s: %q, want %q", since, got, want)
		}
	}
	git(0, "init", "-q")
	mutant := func(pkg, guard string) {
		write(t, root, pkg+"/testdata/mutants/x.txt", "mutant: "+pkg+"\nguard: "+guard+"\nfile: "+pkg+".go\ncaught: tests/"+pkg+" TestX\n-old\n")
	}
	for _, pkg := range []string{"a", "b", "c", "d"} {
		mutant(pkg, "S1")
		write(t, root, pkg+"/"+pkg+".go", "old")
	}
	git(0, "add", ".")
	git(48*time.Hour, "commit", "-qm", "old")
	write(t, root, "a/a.go", "new")
	git(0, "commit", "-qam", "new")
	check("", "abcd")
	check("HEAD", "")
	check("HEAD~", "a")
	check("recent", "a") // since yesterday
	write(t, root, "b/other.go", "")
	write(t, root, "tests/c/new_test.go", "")
	check("HEAD", "c")
	mutant("b", "S2")
	check("HEAD", "bc")
	if got := choose(root, "v1"); !strings.Contains(got, "bad revision 'v1'") {
		t.Errorf("an unknown revision: %s", got)
	}
	shallow := t.TempDir()
	git(0, "clone", "-q", "--depth", "1", "file://"+root, shallow)
	if got := choose(shallow, "recent"); got != "abcd" {
		t.Errorf("a shallow clone: %s", got)
	}
	git(0, "tag", "v1", "HEAD~")
	check("recent", "abc")
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A sample ends when its time is used up, a run without minutes when all have run.
func TestRunAll_endsWithItsMinutes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range thing {
		write(t, dir, name, text)
	}
	write(t, dir, "testdata/mutants/x.txt", "mutant: a\nguard: S1\ncaught: TestGuard/go\n"+change+"mutant: b\nguard: S1\ncaught: TestNothing\n"+change)
	for _, c := range []struct {
		choice
		fails bool
	}{
		{choice{only: regexp.MustCompile("^a")}, false},
		{choice{only: regexp.MustCompile("^b"), minutes: 1}, true},
		{choice{only: regexp.MustCompile("^b"), minutes: 1e-9}, false},
	} {
		if err := runAll(t.Context(), dir, c.choice); (err != nil) != c.fails {
			t.Errorf("%s, %v minutes: %v", c.only, c.minutes, err)
		}
	}
}
