package main

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/repo/docs"
)

func TestAgent_usage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"help":                 {[]string{"-h"}, 0, "-report report.html"},
		"unknown flag":         {[]string{"-order"}, 2, "flag provided but not defined: -order"},
		"chaos for one":        {[]string{"-chaos", "-instances", "1"}, 2, "-chaos needs two -instances at least"},
		"an argument":          {[]string{"redis://localhost"}, 2, `"redis://localhost" is not a flag`},
		"not a number":         {[]string{"-turns", "many"}, 2, `invalid value "many" for flag -turns`},
		"no instance":          {[]string{"-instances", "0"}, 2, "-instances must be 1 to 64"},
		"too many instances":   {[]string{"-instances", "65"}, 2, "-instances must be 1 to 64"},
		"no session":           {[]string{"-sessions", "0"}, 2, "-sessions and -turns at least 1"},
		"no turn":              {[]string{"-turns", "-1"}, 2, "-sessions and -turns at least 1"},
		"unknown lock":         {[]string{"-lock", "etcd://localhost"}, 2, `the scheme "etcd" is not known`},
		"lock without scheme":  {[]string{"-lock", "localhost:6379"}, 2, "it has no scheme"},
		"PostgreSQL, password": {[]string{"-lock", "postgres://u:s3/cret@h/db"}, 2, "-lock: cannot parse `postgres://u:xxxxxx@h/db`"},
		"Sentinel, unnamed":    {[]string{"-lock", "redis+sentinel://localhost"}, 2, "-lock: distlock: invalid option: lock URL: it has no master_name"},
		"report nowhere":       {[]string{"-report", "/no/such/place/r.html"}, 2, "-report: open /no/such/place/r.html: no such file"},
		"report no file":       {[]string{"-report", os.TempDir()}, 2, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := finish(t, program(t, test.args...))
			text := got.stderr
			if test.code == 0 {
				text = got.stdout
			}
			if got.code != test.code || !strings.Contains(text, test.want) {
				t.Errorf("exit code %d, want %d and the text %q", got.code, test.code, test.want)
			}
		})
	}
}

func TestAgent_helpNamesEveryFlag(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-lock URL", "-instances N", "-sessions N", "-turns N", "-chaos ", "-report FILE", "(default 120)", "Exit codes"} {
		if !strings.Contains(usage, flag) {
			t.Errorf("the help does not say %q", flag)
		}
	}
	for line := range strings.Lines(usage) {
		if len([]rune(strings.TrimSuffix(line, "\n"))) > 80 {
			t.Errorf("a line has more than 80 columns: %s", line)
		}
	}
}

// The commands that the documents show are those of the program.
func TestUsage_docsShowCommandsThatWork(t *testing.T) {
	commands := docs.Commands(t, "go", "run", "./examples/agent")
	if len(commands) == 0 {
		t.Error("the documents show no command")
	}
	t.Chdir(t.TempDir()) // for a -report
	for _, c := range commands {
		if _, err := parse(c.Words[3:]); err != nil && !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s:%d shows %q: %v", c.Page, c.Line, c.Words, err)
		}
	}
}
