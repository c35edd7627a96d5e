package main

import (
	"errors"
	"flag"
	"net/http/httptest"
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
		"help":                 {[]string{"-h"}, 0, "-otlp http://localhost:4318"},
		"unknown flag":         {[]string{"-order"}, 2, "flag provided but not defined: -order"},
		"chaos for one":        {[]string{"-chaos", "-instances", "1"}, 2, "-chaos needs two -instances at least"},
		"an argument":          {[]string{"redis://localhost"}, 2, `"redis://localhost" is not a flag`},
		"not a number":         {[]string{"-turns", "many"}, 2, `invalid value "many" for flag -turns`},
		"no instance":          {[]string{"-instances", "0"}, 2, "-instances must be 1 to 64"},
		"too many instances":   {[]string{"-instances", "65"}, 2, "-instances must be 1 to 64"},
		"no session":           {[]string{"-sessions", "0"}, 2, "-sessions and -turns at least 1"},
		"no turn":              {[]string{"-turns", "-1"}, 2, "-sessions and -turns at least 1"},
		"locks of one process": {[]string{"-lock", "mem://"}, 2, "mem:// cannot work"},
		"store of one process": {[]string{"-store", "mem://"}, 2, "mem:// cannot work"},
		"locks of two nodes":   {[]string{"-lock", "redlock+redis://a,b"}, 2, "-lock: distlock: invalid option"},
		"store on a quorum":    {[]string{"-store", "redlock+redis://a,b,c"}, 2, "-store: a quorum keeps locks alone"},
		"unknown store":        {[]string{"-store", "etcd://localhost"}, 2, `-store: distlock: invalid option: lock URL: the scheme "etcd" is not known`},
		"unknown lock":         {[]string{"-lock", "etcd://localhost"}, 2, `the scheme "etcd" is not known`},
		"lock without scheme":  {[]string{"-lock", "localhost:6379"}, 2, "it has no scheme"},
		"PostgreSQL, password": {[]string{"-lock", "postgres://u:s3/cret@h/db"}, 2, "-lock: distlock: invalid option: lock URL: it cannot be parsed: write postgres://"},
		"Sentinel, unnamed":    {[]string{"-lock", "redis+sentinel://localhost"}, 2, "-lock: distlock: invalid option: lock URL: it has no master_name"},
		"report nowhere":       {[]string{"-report", "/no/such/place/r.html"}, 2, "-report: there is no directory /no/such/place"},
		"report no file":       {[]string{"-report", os.TempDir()}, 2, "is a directory"},
		"metrics, no colon":    {[]string{"-metrics", "9464"}, 2, `-metrics is "9464", but must be an address such as :9464`},
		"metrics, no port":     {[]string{"-metrics", "localhost:"}, 2, `-metrics is "localhost:", but must be an address`},
		"metrics, a URL":       {[]string{"-metrics", "http://localhost:9464"}, 2, `-metrics is "http://localhost:9464", but must be`},
		"bad endpoint":         {[]string{"-otlp", "localhost:4318"}, 2, "-otlp is \"localhost:4318\", but must be a URL"},
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
	for _, flag := range []string{"-lock URL", "-store URL", "-instances N", "-sessions N", "-turns N", "-chaos ", "-otlp ENDPOINT", "-report FILE", "-metrics ADDRESS", "(default 120)", "Exit codes"} {
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

func TestAgent_saysThatThePortOfMetricsIsTaken(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	defer server.Close()
	address := server.Listener.Addr().String()
	got := finish(t, program(t, "-metrics", address))
	if want := "agent: -metrics: listen tcp " + address + ": bind: address already in use\n"; got.code != 1 || got.stderr != want {
		t.Errorf("exit code %d, want 1 and %q alone", got.code, want)
	}
}

// The commands that the documents show are those of the program.
func TestUsage_docsShowCommandsThatWork(t *testing.T) {
	commands := docs.Commands(t, "go", "run", "./examples/agent")
	if len(commands) == 0 {
		t.Error("the documents show no command")
	}
	t.Chdir(t.TempDir()) // for a -report
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	for _, c := range commands {
		if _, err := parse(c.Words[3:]); err != nil && !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s:%d shows %q: %v", c.Page, c.Line, c.Words, err)
		}
	}
}
