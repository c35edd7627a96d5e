package main

import (
	"strings"
	"testing"
)

// thing is a module with a guard, a test that watches it, and one that does not.
var thing = map[string]string{
	"go.mod":    "module thing\n\ngo 1.25.0\n",
	"thing.go":  "package thing\n\nimport _ \"embed\"\n\n//go:embed words.txt\nvar words string\n\nfunc guard() bool {\n\treturn true\n}\n",
	"words.txt": "guarded\n",
	"thing_test.go": `package thing

import "testing"

func TestGuard(t *testing.T) {
	t.Run("go", func(t *testing.T) {
		if !guard() {
			t.Error("the guard is out")
		}
	})
	t.Run("embedded", func(t *testing.T) {
		if words != "guarded\n" {
			panic("the guard is out")
		}
	})
}

func TestNothing(*testing.T) {}
`,
}

const change = "file: thing.go\n-return true\n+return false\n"

// Each verdict is told from the others. A module below the root is tested in the workspace, which may
// have a stand-in for an import.
func TestGate_tellsWhatBecomesOfAMutant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range thing {
		write(t, dir, name, text)
		write(t, dir, "below/"+name, strings.Replace(text, "module thing", "module thing/below", 1))
	}
	write(t, dir, "contract.work", "go 1.25.0\n\nuse (\n\t.\n\t./below\n)\n")
	for _, c := range []struct {
		name, in, mutant string
		want             verdict
	}{
		{"a guard that is tested", "", "caught: TestGuard/go\n" + change, killed},
		{"in a module below", "below/", "caught: TestGuard/go\n" + change, killed},
		{"an embedded file, and a panic", "", "caught: TestGuard/embedded\nfile: words.txt\n-guarded\n+\n", killed},
		{"one of two tests", "", "caught: TestGuard/go\ncaught: TestNothing\n" + change, survived},
		{"what does not compile", "", "caught: TestGuard/go\nfile: thing.go\n-return true\n+return maybe\n", invalid},
		{"a test that is not there", "", "caught: TestGuard/gone\n" + change, invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mutants, err := parse(c.in+"testdata/mutants/x.txt", "mutant: m\nguard: S1\n"+c.mutant)
			if err != nil {
				t.Fatal(err)
			}
			g := &gate{root: dir, scratch: t.TempDir()}
			if v, by, detail, err := g.try(t.Context(), mutants[0]); v != c.want || err != nil {
				t.Errorf("%s, %v, by %s; want %s\n%s", v, err, by, c.want, detail)
			}
		})
	}
}

func TestOutcome_aTestThatDoesNotEndCountsIfTheMutantSaysSo(t *testing.T) {
	out := read([]byte(`{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"panic: test timed out after 1m0s\n"}
{"Action":"fail","Test":"TestA"}
{"Action":"fail"}
`))
	out.failed = true
	if v, _ := out.judge(test{"", "TestA"}, &mutant{}); v != invalid {
		t.Error(v)
	}
	if v, _ := out.judge(test{"", "TestA"}, &mutant{hangs: true}); v != killed {
		t.Error(v)
	}
}

// A test that fails by a script with wrong syntax says nothing of the guard.
func TestOutcome_aServerThatRefusesTheScriptCatchesNothing(t *testing.T) {
	for _, refusal := range []string{
		"ERR Error compiling script (new function): user_script:1: unexpected symbol near '='",
		"ERR user_script:1: Script attempted to access nonexistent global variable 'foo'",
		"ERROR: syntax error at or near (SQLSTATE 42601)",
	} {
		out := read([]byte(`{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"` + refusal + `\n"}
{"Action":"fail","Test":"TestA"}
`))
		out.failed = true
		for file, want := range map[string]verdict{"lua/a.lua": invalid, "sql/a.sql": invalid, "quotes.go": killed} {
			if v, _ := out.judge(test{"", "TestA"}, &mutant{file: file}); v != want {
				t.Errorf("%s in %s: %s, want %s", refusal, file, v, want)
			}
		}
	}
}

// A test that fails by itself catches nothing.
func TestGate_wantsTestsThatPassUnbroken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range thing {
		write(t, dir, name, strings.ReplaceAll(text, "return true", "return false"))
	}
	g := &gate{root: dir, scratch: t.TempDir(), passed: make(map[run]bool)}
	mutants := []*mutant{{name: "m", caught: []test{{".", "TestNothing"}}}, {name: "n", caught: []test{{".", "TestGuard/go"}}}}
	err := g.passesUnbroken(t.Context(), mutants...)
	if err == nil || !strings.Contains(err.Error(), "TestGuard/go does not pass") {
		t.Error(err)
	}
}
