package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// All mutants fit the code as it is, and name tests that there are.
func TestMutants_fitTheCode(t *testing.T) {
	t.Parallel()
	mutants, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) < 100 {
		t.Errorf("%d mutants were found", len(mutants))
	}
	suites := source(t, "distlock/drivertest", "*.go") + source(t, "lockedmemory/sessionstore/storetest", "*.go")
	known := make(map[string]string)
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
		if err != nil {
			t.Errorf("%s: %v", m.from, err)
			continue
		}
		if _, err := m.apply(string(text)); err != nil {
			t.Error(err)
		}
		for _, c := range m.caught {
			if known[c.pkg] == "" {
				known[c.pkg] = source(t, c.pkg, "*_test.go")
			}
			name, part, _ := strings.Cut(c.name, "/")
			if !strings.Contains(known[c.pkg], "func_"+name+"(") {
				t.Errorf("%s: %s: there is no test %s", m.from, m.name, c)
			}
			// How a part of a test is called can only be guessed from what is written there. make
			// mutants knows.
			for rest, more := part, part != ""; more && !strings.Contains(known[c.pkg]+suites, `"`+rest+`"`); {
				if _, rest, more = strings.Cut(rest, "/"); !more {
					t.Errorf("%s: %s: there is no part %s of %s", m.from, m.name, part, name)
				}
			}
		}
	}
}

// A mutant stands for what a user relies on: a promise, a rule with ⚑, or what a caller is told of a call.
func TestMutants_guardAPromise(t *testing.T) {
	t.Parallel()
	mutants, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	promised := regexp.MustCompile(`^(S1|S2|O|L|N|C)[,/]|^outcome\b|⚑`)
	for _, m := range mutants {
		if !promised.MatchString(m.guard) {
			t.Errorf("%s: %s guards no promise: begin its guard with S1, S2, O, L, N or C of docs/guarantees.md, "+
				"with outcome, or with ⚑ and a rule of docs/design; otherwise delete it, and keep its test", m.from, m.name)
		}
	}
}

// source is the code of a package, with _ for each space, as go test shows the names of tests.
func source(t *testing.T, pkg, files string) (text string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), files))
	if err != nil || len(names) == 0 {
		t.Fatalf("no package %s: %v", pkg, err)
	}
	for _, name := range names {
		code, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text += strings.ReplaceAll(string(code), " ", "_")
	}
	return text
}

const example = `# A comment.
mutant: thing/guard
guard:  S1, a guard
file:   thing.go
caught: TestThing
caught: other TestOther/part
with:   -race
hangs:  counts
 before
-old
+new
...
-last
`

func TestParse_refusesWhatIsNoMutant(t *testing.T) {
	for name, text := range map[string]string{
		"without a name":   "guard: S1\n",
		"without a guard":  "mutant: a\nfile: b.go\ncaught: TestC\n-d\n",
		"without a file":   "mutant: a\nguard: S1\ncaught: TestC\n-d\n",
		"without a test":   "mutant: a\nguard: S1\nfile: b.go\n-d\n",
		"without a change": "mutant: a\nguard: S1\nfile: b.go\ncaught: TestC\n",
		"an unknown key":   example + "why: because\n",
	} {
		if mutants, err := parse("a/testdata/mutants/x.txt", text); err == nil {
			t.Errorf("%s: %+v", name, mutants)
		}
	}
}

func TestApply_refusesWhatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct{ change, text string }{
		"a line that is not there":        {"-old", "new\n"},
		"lines that are there twice":      {"-old", "old\nold\n"},
		"lines that do not follow":        {"-one\n-two", "one\nand\ntwo\n"},
		"a change that adds alone":        {"+new", "old\n"},
		"a change that leaves all as was": {"-old\n+old", "\told\n"},
		"context alone":                   {" old", "old\n"},
		"a part without its …":            {"-old", "an old line\n"},
		"a part that is not at the start": {"-old…", "an old line\n"},
		"a part that is not at the end":   {"-…old", "an old line\n"},
		"a part that two lines have":      {"-…old…", "an old line\nold\n"},
		"a part that one line has twice":  {"-…aa…", "aaa\n"},
		"two parts, one of them twice":    {"-…a…\n-…b…", "a\nbb\n"},
		"a part that changes nothing":     {"-…old…\n+…old…", "an old line\n"},
	} {
		if changed, err := parseOne(t, c.change).apply(c.text); err == nil {
			t.Errorf("%s: %q", name, changed)
		}
	}
}

func parseOne(t *testing.T, change string) *mutant {
	t.Helper()
	mutants, err := parse("a/testdata/mutants/x.txt", "mutant: m\nguard: S1\nfile: b.go\ncaught: TestC\n"+change+"\n")
	if err != nil || len(mutants) != 1 {
		t.Fatal(mutants, err)
	}
	return mutants[0]
}
