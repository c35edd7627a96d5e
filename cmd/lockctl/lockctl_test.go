package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// asProgram makes the test binary lockctl.
const asProgram = "LOCKCTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	redis.SetLogger(silent{})
	os.Unsetenv("LOCKCTL_URL")
	os.Unsetenv("LOCKCTL_STORE")
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// result is what a command line has printed, and its exit code.
type result struct {
	out, errs string
	code      int
}

// lockctl runs a command line as the program does.
func lockctl(t *testing.T, args ...string) result {
	t.Helper()
	return lockctlWith(t.Context(), strings.NewReader(""), args...)
}

// lockctlWith runs a command line with an input.
func lockctlWith(ctx context.Context, in io.Reader, args ...string) result {
	var out, errs bytes.Buffer
	run := &tool{in: in, out: &out, errs: &errs}
	code := run.run(ctx, args)
	return result{out.String(), errs.String(), code}
}

func (r result) is(t *testing.T, code int, texts ...string) result {
	t.Helper()
	if r.code != code {
		t.Errorf("the exit code is %d, want %d; it printed %q and %q", r.code, code, r.out, r.errs)
	}
	printed := r.out + r.errs
	for _, text := range texts {
		if !strings.Contains(printed, text) {
			t.Errorf("it printed %q and %q, want %q", r.out, r.errs, text)
		}
	}
	return r
}

var (
	blanks    = regexp.MustCompile(` {2,}`)
	durations = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?m?s\b`)
	tokens    = regexp.MustCompile(`\b17\d{14}\b|\b1[89]\d{14}\b`)
	// placeTokens are the tokens in places.
	placeTokens = regexp.MustCompile(`\b1[789]\d{14}\b`)
	clocks      = regexp.MustCompile(`\b(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\dZ?\b`)
	moments     = regexp.MustCompile(`(_ms": )\d+`)
)

// stable hides what differs between runs: durations, tokens, and the widths of columns.
func stable(text string) string {
	text = clocks.ReplaceAllString(text, "CLOCK")
	text = tokens.ReplaceAllString(moments.ReplaceAllString(durations.ReplaceAllString(text, "9s"), "${1}9"), "TOKEN")
	return strings.TrimSpace(blanks.ReplaceAllString(text, "  "))
}

func (r result) prints(t *testing.T, code int, want string) {
	t.Helper()
	if got := stable(r.out); r.code != code || got != stable(want) {
		t.Errorf("it printed, with the exit code %d:\n%s\nwant %d:\n%s\nErrors: %s", r.code, got, code, stable(want), r.errs)
	}
}

// onBackends runs a test on a Redis and on a PostgreSQL of its own namespaces.
func onBackends(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("redis", func(t *testing.T) { test(t, servers.SharedRedis(t).URL()) })
	t.Run("postgres", func(t *testing.T) { test(t, postgresURL(t)) })
}

func postgresURL(t *testing.T) string {
	return migrated.Database(t, servers.SharedPostgres(t)).URL()
}

var owners atomic.Int64

// owner is one that a test has put into a backend.
type owner struct {
	driver driver.Driver
	req    driver.AcquireRequest
	reply  driver.AcquireReply
}

// acquire makes an owner hold or await a lock for a minute.
func acquire(t *testing.T, d driver.Driver, key, holder string) owner {
	t.Helper()
	n := owners.Add(1)
	req := driver.AcquireRequest{
		Name: driver.Name{Namespace: "distlock", Key: key}, Owner: fmt.Sprintf("%032x", n), Holder: holder, TTL: time.Minute,
		Metadata: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		Alive:    time.Minute, Seq: 1,
	}
	reply, err := d.Acquire(t.Context(), req)
	must(t, err)
	return owner{d, req, reply}
}

func open(t *testing.T, url string) driver.Driver {
	t.Helper()
	d, err := lockurl.OpenDriver(url)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestUsage_badInputSaysWhatToDo(t *testing.T) {
	for line, want := range map[string]string{
		"list":                        "use --url or LOCKCTL_URL",
		"session list":                "use --store, LOCKCTL_STORE, --url or LOCKCTL_URL",
		"doctor":                      "use --url or LOCKCTL_URL",
		"doctor --url redis://h:port": "a port must be a number",
		"doctor --url redis://127.0.0.1:1 --store http://h": `the scheme "http" is not known`,
		"list --url mem://":                        "lockctl cannot reach",
		"list --url nonsense":                      "it has no scheme",
		"list --url redis://h/0?ttl=x":             "ttl is not a duration",
		"list --url redis://h --limit 0":           "must be at least 1",
		"list -o yaml":                             "must be table or json",
		"list extra":                               `the argument "extra" is one too many`,
		"list --long":                              "--long is unknown; see lockctl list -h",
		"list -x":                                  "-x is unknown; see lockctl list -h",
		"lisst":                                    `unknown command "lisst"`,
		"session lisst":                            `unknown command "lisst"`,
		"show":                                     "the argument KEY is missing",
		"release k --url redis://h":                "--token is missing",
		"release k --url redis://h --token x":      `--token is "x", but must be a number`,
		"stop s --url redis://h --grace x":         `--grace is "x", but must be a time, as 10s`,
		"stop s --url redis://h --grace -1s":       "--grace is -1s, but must not be negative",
		"session show s --url redis://h --limit 0": "must be at least 1",
		"session list --store redlock+redis://a,b,c/0?restart_delay=1m": "keeps no sessions",
		"session list --store redis://h/0?namespace={":                  "braces",
	} {
		t.Run(line, func(t *testing.T) {
			r := lockctl(t, strings.Fields(line)...).is(t, exitUsage, want)
			if strings.Count(r.errs, "\n") != 1 || strings.Contains(r.errs, `\n`) {
				t.Errorf("it printed %q, want one line", r.errs)
			}
			if !oneVoice.MatchString(r.errs) || strings.Contains(r.errs, "distlock:") || strings.Contains(r.errs, "invalid") {
				t.Errorf("it printed %q, want the voice of lockctl and the command of its help", r.errs)
			}
		})
	}
}

// oneVoice matches the error of a wrong use.
var oneVoice = regexp.MustCompile(`^lockctl: .*; see lockctl[ a-z]* -h\n$`)

func TestHelp_fits80Columns(t *testing.T) {
	for _, line := range []string{"", "list", "show", "release", "stop", "doctor", "session", "session list",
		"session show", "session inbox", "session verify", "session delete"} {
		fits(t, 80, lockctl(t, append(strings.Fields(line), "-h")...).is(t, 0, "Usage:").out)
	}
}

// fits wants lines that a terminal of that width does not break.
func fits(t *testing.T, width int, printed string) {
	t.Helper()
	for line := range strings.Lines(printed) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("a line has %d columns of %d: %s", n, width, line)
		}
	}
}

func TestExitCodes_unavailableRefusedUnsupported(t *testing.T) {
	server, bare := servers.SharedRedis(t), servers.SharedPostgres(t).NewDatabase(t).URL()
	must(t, second(server.Do("SET", "distlock:{odd}:lock", "a value of another program")))
	const down, quorum = "redis://127.0.0.1:1/0?max_retries=-1", "redlock+redis://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/0?restart_delay=1m"
	for _, c := range []struct {
		line, url string
		code      int
		want      string
	}{
		{"list", down, exitUnavailable, "does not answer"},
		{"show k", down, exitUnavailable, "unavailable"},
		{"release k --token 1 --yes", down, exitUnavailable, "unavailable"},
		{"session list", down, exitUnavailable, "does not answer"},
		{"session verify s", down, exitUnavailable, "does not answer"},
		{"session delete s --yes", down, exitUnavailable, "does not answer"},
		{"show odd", server.URL(), exitRefused, "another program"},
		{"stop s --id m --yes", down, exitUnavailable, "unavailable"},
		{"list", bare, exitRefused, "Migrate"},
		{"session list", bare, exitRefused, "Migrate"},
		{"list", quorum, exitUnsupported, "cannot list its locks"},
		{"release k --token 1", quorum, exitUnsupported, "cannot end a lock"},
		{"stop s --store " + server.URL(), quorum, exitUnsupported, "cannot stop a turn"},
		{"show k", quorum, exitUnavailable, "unavailable"},
	} {
		t.Run(c.line, func(t *testing.T) {
			lockctl(t, append(strings.Fields(c.line), "--url", c.url)...).is(t, c.code, c.want)
		})
	}
}

func TestCompletion_isForShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		lockctl(t, "completion", shell).is(t, 0, "lockctl")
	}
	lockctl(t, "__complete", "session", "v").is(t, 0, "verify\tCheck")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }
