package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// repository is one with a commit that is two days old, where each of the packages a to d has a mutant, and a commit of today.
func repository(t *testing.T) (root string, git func(args ...string)) {
	root = t.TempDir()
	git = func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost"}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE="+time.Now().Add(-48*time.Hour).Format(time.RFC3339))
		if slices.Contains(args, "today") {
			cmd.Env = os.Environ()
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	for _, pkg := range []string{"a", "b", "c", "d"} {
		write(t, root, pkg+"/"+pkg+".go", "old")
		write(t, root, pkg+"/testdata/mutants/x.txt", "mutant: "+pkg+"\nguard: S1\nfile: "+pkg+".go\ncaught: tests/"+pkg+" TestX\n-old\n")
		write(t, root, "tests/"+pkg+"/x_test.go", "old")
	}
	git("add", ".")
	git("commit", "-qm", "two days ago")
	write(t, root, "a/a.go", "new")
	git("commit", "-qam", "today")
	return root, git
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

func chosen(t *testing.T, root, since string) string {
	t.Helper()
	mutants, err := choice{only: regexp.MustCompile(""), since: since}.choose(root)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, m := range mutants {
		names = append(names, m.name)
	}
	return strings.Join(names, " ")
}

func TestChoose_whatHasChanged(t *testing.T) {
	t.Parallel()
	root, git := repository(t)
	check := func(since, want string) {
		t.Helper()
		if got := chosen(t, root, since); got != want {
			t.Errorf("since %s: %q, want %q", since, got, want)
		}
	}
	check("", "a b c d")
	check("HEAD", "")
	check("HEAD~", "a")
	check("recent", "a") // since yesterday
	write(t, root, "b/testdata/mutants/y.txt", "")
	write(t, root, "b/other.go", "")
	write(t, root, "tests/c/y_test.go", "")
	check("HEAD", "c")
	write(t, root, "b/testdata/mutants/x.txt", "mutant: b\nguard: S2\nfile: b.go\ncaught: tests/b TestX\n-old\n")
	check("HEAD", "b c")
	git("add", ".")
	git("commit", "-qm", "today")
	git("tag", "v1")
	check("recent", "")
	write(t, root, "tests/d/x_test.go", "new")
	check("recent", "d")
	if got := chosen(t, root, "v2"); !strings.Contains(got, `does not know the revision "v2"`) {
		t.Error(got)
	}
}

func TestChoose_allWhereGitKnowsNoPast(t *testing.T) {
	t.Parallel()
	root, git := repository(t)
	git("clone", "-q", "--depth", "1", "file://"+root, "clone")
	if got := chosen(t, filepath.Join(root, "clone"), "recent"); got != "a b c d" {
		t.Error(got)
	}
	bare := t.TempDir()
	write(t, bare, "testdata/mutants/x.txt", "mutant: m\nguard: S1\nfile: b.go\ncaught: TestX\n-old\n")
	if got := chosen(t, bare, "recent"); got != "m" {
		t.Error(got)
	}
}

func TestChoose_theSeedIsTheOrder(t *testing.T) {
	order := func(seed uint64) (names string) {
		mutants, err := choice{only: regexp.MustCompile(""), minutes: 1, seed: seed}.choose(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mutants {
			names += m.name + " "
		}
		return names
	}
	if order(1) != order(1) || order(1) == order(2) {
		t.Error("a seed does not repeat an order, or all have the same")
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
