package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// verdict is what became of a mutant.
type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "SURVIVED"
	invalid  verdict = "INVALID" // it proves nothing: it does not compile, or its tests do not end
)

// patience is how long the tests of one mutant may take, see mutant.hangs. With a guard out of the
// way they may stand still.
const patience = time.Minute

// gate runs tests, with mutants and without.
type gate struct {
	root    string
	scratch string
	passed  map[run]bool // without any mutant
}

// run is a test, and the flags of go test with which it runs.
type run struct {
	test test
	with string
}

// passesUnbroken runs the tests of mutants without any, once: one that fails by itself catches nothing.
func (g *gate) passesUnbroken(ctx context.Context, mutants ...*mutant) error {
	together := make(map[run][]test) // by package, which stands in for a test
	for _, m := range mutants {
		for _, t := range m.caught {
			with := strings.Join(m.with, " ")
			if pkg := (run{test{pkg: t.pkg}, with}); !g.passed[run{t, with}] && !slices.Contains(together[pkg], t) {
				together[pkg] = append(together[pkg], t)
			}
		}
	}
	for r, tests := range together {
		out, err := g.test(ctx, min(10*time.Minute, time.Duration(len(tests))*patience), strings.Fields(r.with), tests)
		if err != nil {
			return err
		}
		for _, t := range tests {
			if out.of[t.name] != "pass" {
				return fmt.Errorf("without any mutant, %s does not pass:\n%s", t, out.tail())
			}
			g.passed[run{t, r.with}] = true
		}
	}
	return nil
}

// try runs a mutant's tests. It returns what became of it, and the tests that say so.
func (g *gate) try(ctx context.Context, m *mutant) (v verdict, by string, detail string, err error) {
	name, err := filepath.Abs(filepath.Join(g.root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", "", "", err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", "", "", err
	}
	changed, err := m.apply(string(text))
	if err != nil {
		return "", "", "", err
	}
	mutated := filepath.Join(g.scratch, "mutated"+filepath.Ext(m.file))
	overlay := filepath.Join(g.scratch, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {name: mutated}})
	if err != nil {
		return "", "", "", err
	}
	if err := cmp.Or(os.WriteFile(mutated, []byte(changed), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", "", "", err
	}
	// One after the other: a program that panics in the first does not get to the second.
	var noticed []string
	for _, t := range m.caught {
		out, err := g.test(ctx, patience, append([]string{"-overlay", overlay}, m.with...), []test{t})
		if err != nil {
			return "", "", "", err
		}
		if v, why := out.judge(t, m); v != killed {
			return v, fmt.Sprintf("%s %s", t, why), out.tail(), nil
		}
		noticed = append(noticed, t.String())
	}
	return killed, strings.Join(noticed, ", "), "", nil
}

// test runs tests of one package.
func (g *gate) test(ctx context.Context, limit time.Duration, flags []string, tests []test) (*outcome, error) {
	patterns := make([]string, len(tests))
	for i, t := range tests {
		var words []string
		for _, word := range t.split() {
			words = append(words, "^"+regexp.QuoteMeta(word)+"$")
		}
		patterns[i] = strings.Join(words, "/")
	}
	args := append([]string{"test", "-json", "-vet=off", "-ldflags=-s -w", "-count=1", "-timeout", limit.String()}, flags...)
	args = append(args, "-run", strings.Join(patterns, "|"), "./"+tests[0].pkg)
	ctx, cancel := context.WithTimeout(ctx, limit+2*time.Minute) // go test ends by itself, unless what it has to build does not
	defer cancel()
	workspace, err := g.workspace(tests[0].pkg)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.root
	cmd.Env = append(os.Environ(), "GOWORK="+workspace)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	failed := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	out := read(stdout.Bytes())
	out.text += stderr.String()
	out.failed = failed != nil
	return out, nil
}

// workspace is what GOWORK has to be for the tests of a package: that of a module below the root is
// tested in the workspace that uses the module, and one of the root without any.
func (g *gate) workspace(pkg string) (string, error) {
	for dir := path.Clean(pkg); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(g.root, filepath.FromSlash(dir), "go.mod")); err != nil {
			continue
		}
		works, err := filepath.Glob(filepath.Join(g.root, "*.work"))
		for _, work := range works {
			text, err := os.ReadFile(work)
			if err != nil {
				return "", err
			}
			if strings.Contains(string(text), "\t./"+dir+"\n") {
				return filepath.Abs(work)
			}
		}
		return "", cmp.Or(err, fmt.Errorf("no workspace uses the module %s", dir))
	}
	return "off", nil
}

// refusal matches what a server says of a script or a function with wrong syntax or an unknown name.
var refusal = regexp.MustCompile(`Error compiling script|nonexistent global variable|SQLSTATE 42(601|703)`)

// outcome is what go test says of a run.
type outcome struct {
	of      map[string]string // "run", "pass", "fail" or "skip", by test
	text    string
	failed  bool // the run as a whole
	unbuilt bool // by the compiler of Go
	refused bool // by a server: a script or a statement
	hangs   bool
}

func read(stream []byte) *outcome {
	out := &outcome{of: make(map[string]string)}
	var text strings.Builder
	for line := range bytes.Lines(stream) {
		var event struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(line, &event) != nil {
			text.Write(line)
			continue
		}
		text.WriteString(event.Output)
		out.unbuilt = out.unbuilt || event.Action == "build-fail" || event.FailedBuild != ""
		out.refused = out.refused || refusal.MatchString(event.Output)
		out.hangs = out.hangs || strings.HasPrefix(event.Output, "panic: test timed out after ")
		switch event.Action {
		case "run", "pass", "fail", "skip":
			if event.Test != "" {
				out.of[event.Test] = event.Action
			}
		}
	}
	out.text = text.String()
	return out
}

// judge says whether a test has noticed that the guard of m was out. A guard in Go may be what keeps a
// statement valid.
func (out *outcome) judge(t test, m *mutant) (v verdict, why string) {
	switch result := out.of[t.name]; {
	case out.unbuilt, out.refused && path.Ext(m.file) != ".go":
		return invalid, "was not built"
	case out.hangs && !m.hangs:
		return invalid, "has not ended: if that is how it notices, say hangs: counts"
	case result == "fail", result == "run" && out.failed: // in the latter case the whole program has ended
		return killed, ""
	case result == "pass":
		return survived, "passes"
	default:
		return invalid, "did not run"
	}
}

// tail is the end of what the tests have printed.
func (out *outcome) tail() string {
	const most = 40
	lines := strings.Split(strings.TrimSpace(out.text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
