package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(testservers.Sharing{M: m}) }

// result is what a command line has printed, and its exit code.
type result struct {
	out, errs string
	code      int
}

// lockctl runs a command line as the program does, outside a terminal.
func lockctl(t *testing.T, args ...string) result { return lockctlWith(t, 0, "", args...) }

// lockctlWith runs a command line in a terminal of that width, with an input.
func lockctlWith(t *testing.T, width int, input string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	run := &tool{in: strings.NewReader(input), out: &out, errs: &errs, width: width}
	code := run.run(context.WithoutCancel(t.Context()), args)
	return result{out.String(), errs.String(), code}
}

func (r result) is(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("the exit code is %d, want %d; it printed %q and %q", r.code, code, r.out, r.errs)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.errs, text) {
			t.Errorf("it printed %q and %q, want %q", r.out, r.errs, text)
		}
	}
}

func TestUsage_badInputSaysWhatToDo(t *testing.T) {
	t.Setenv("LOCKCTL_URL", "")
	for line, want := range map[string]string{
		"list":                           "use --url or LOCKCTL_URL",
		"list --url mem://":              "lockctl cannot reach",
		"list --url nonsense":            "it has no scheme",
		"list --url redis://h/0?ttl=x":   "ttl is not a duration",
		"list --url redis://h --limit 0": "must be at least 1",
		"list -o yaml":                   `use table or json`,
		"list extra":                     `unknown command "extra"`,
		"list --long":                    "unknown flag: --long",
		"lisst":                          `unknown command "lisst"`,
	} {
		t.Run(line, func(t *testing.T) { lockctl(t, strings.Fields(line)...).is(t, exitUsage, want) })
	}
}
