package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/belugalock/belugalock/internal/testservers"
)

// asProgram makes the test binary the program, so that what is tested is built with the race
// detector, too.
const asProgram = "BELUGALOCK_EXAMPLE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.WaitDelay = 5 * time.Second
	// The race detector lets every process sleep for a second before it ends, unless told not to.
	cmd.Env = append(os.Environ(), asProgram+"=yes", "GORACE=atexit_sleep_ms=0")
	return cmd
}

type outcome struct {
	stdout, stderr string
	code           int
}

func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	return begin(t, cmd)()
}

// begin starts a run. The function that begin returns waits for its end.
func begin(t *testing.T, cmd *exec.Cmd) func() outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("exit code %d\nstdout:\n%s\nstderr:\n%s", cmd.ProcessState.ExitCode(), &stdout, &stderr)
		}
	})
	return func() outcome {
		_ = cmd.Wait() // the exit code says how it ended
		return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	}
}

// row returns the numbers in a row of the table: without a lock, with a lock around Save, and with
// one around the whole turn.
func (o outcome) row(t *testing.T, title string) (runs [3]int) {
	t.Helper()
	m := regexp.MustCompile(`│ ` + regexp.QuoteMeta(title) + `[^│]*│ *(\d+) │ *(\d+) │ *(\d+) │`).FindStringSubmatch(o.stdout)
	if m == nil {
		t.Fatalf("the table has no row %q", title)
	}
	for i := range runs {
		runs[i], _ = strconv.Atoi(m[i+1])
	}
	return runs
}

// last returns the number in a row that is about the last run alone.
func (o outcome) last(t *testing.T, title string) int {
	t.Helper()
	m := regexp.MustCompile(`│ ` + regexp.QuoteMeta(title) + `[^│]*│ *– │ *– │ *(\d+) │`).FindStringSubmatch(o.stdout)
	if m == nil {
		t.Fatalf("the table has no row %q", title)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// checkReport is what every good run shows.
func checkReport(t *testing.T, got outcome, messages int) {
	t.Helper()
	if got.code != 0 {
		t.Fatalf("the exit code is %d, want 0", got.code)
	}
	if n := got.row(t, "messages of users"); n != [3]int{messages, messages, messages} {
		t.Errorf("%d messages, want %d in each run", n, messages)
	}
	damage := 0
	for _, title := range []string{"lost", "torn", "stale", "doubled", "out of order"} {
		n := got.row(t, title)
		damage += n[0]
		if n[2] != 0 {
			t.Errorf("with whole turns %d messages are %s", n[2], title)
		}
	}
	if damage == 0 {
		t.Error("without a lock nothing went wrong")
	}
	if n := got.row(t, "stale"); n[1] == 0 {
		t.Error("with a lock around Save alone no answer is stale")
	}
	for _, want := range []string{
		"stale writes refused", "wait for the lock, median", "lockedmemory.turn", "distlock.acquire", "load ", "model ", "lockedmemory.save",
		"distlock.release", "░",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the report does not show %q", want)
		}
	}
	for _, line := range strings.Split(got.stdout, "\n") {
		if n := len([]rune(line)); n > 100 {
			t.Errorf("a line has %d columns, at most 100 are allowed: %s", n, line)
		}
	}
}

func TestAgent_showsDamageWithoutTheLockAndNoneWithIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.html")
	var store spanStore
	server := httptest.NewServer(&store)
	defer server.Close()
	cmd := program(t, "-turns", "40", "-report", path)
	cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL)
	got := finish(t, cmd)
	checkReport(t, got, 3*40)
	for _, want := range []string{"no lock: 144 messages\n", "Save only: 144 messages\n", "whole turn: 144 messages\n"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("stderr does not say %q", want)
		}
	}
	store.check(t, 144)

	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stale := got.row(t, "stale")
	row := fmt.Sprintf(`<td class="bad">%d</td><td class="bad">%d</td><td>0</td>`, stale[0], stale[1])
	if !bytes.Contains(page, []byte(row)) || !bytes.HasSuffix(page, []byte("</html>\n")) {
		t.Errorf("the page does not have %s, or no end", row)
	}
}

func TestAgent_leavesNothingOnARealRedis(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	var store spanStore
	collector := httptest.NewServer(&store)
	defer collector.Close()
	checkReport(t, finish(t, program(t, "-lock", server.URL(), "-turns", "20", "-sessions", "2", "-otlp", collector.URL)), 2*20)
	store.check(t, 2*(20+4))
	if keys, err := server.Do("KEYS", "*"); keys != "" || err != nil {
		t.Errorf("keys are left: %q, error %v", keys, err)
	}
}

func TestAgent_leavesNothingOnAPostgres(t *testing.T) {
	t.Parallel()
	db := testservers.StartPostgres(t).NewDatabase(t)
	checkReport(t, finish(t, program(t, "-lock", db.URL()+"&schema=unused", "-turns", "20", "-sessions", "2")), 2*20)
	if left, err := db.Do(`SELECT nspname FROM pg_namespace WHERE nspname ~ 'agent|unused'`); left != "" || err != nil {
		t.Errorf("schemas are left: %q, error %v", left, err)
	}
}

// calls returns how often clients have sent a command to a server.
func calls(t *testing.T, server *testservers.Redis, command string) int {
	t.Helper()
	stats, err := server.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(stats)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func TestAgent_storeOfItsOwn_hasHistoriesAlone(t *testing.T) {
	t.Parallel()
	locks, histories, db := testservers.StartRedis(t), testservers.StartRedis(t), testservers.StartPostgres(t).NewDatabase(t)
	for name, args := range map[string][]string{
		"locks on Redis, histories on another one": {"-lock", locks.URL(), "-store", histories.URL()},
		"locks on PostgreSQL, histories on Redis":  {"-lock", db.URL(), "-store", histories.URL()},
		"locks on Redis, histories on PostgreSQL":  {"-lock", locks.URL(), "-store", db.URL()},
		"locks embedded, histories on Redis":       {"-store", histories.URL()},
	} {
		for _, server := range []*testservers.Redis{locks, histories} {
			if _, err := server.Do("CONFIG", "RESETSTAT"); err != nil {
				t.Fatal(err)
			}
		}
		checkReport(t, finish(t, program(t, append(args, "-turns", "15", "-sessions", "2")...)), 2*15)
		for server, want := range map[*testservers.Redis][2]bool{
			locks:     {strings.HasPrefix(name, "locks on Redis"), false},
			histories: {false, strings.Contains(name, "histories on Redis") || strings.Contains(name, "histories on another")},
		} {
			// Locks alone need GETEX, and histories alone XADD and RPUSH.
			if got := [2]bool{calls(t, server, "getex") > 0, calls(t, server, "xadd") > 0 && calls(t, server, "rpush") > 0}; got != want {
				t.Errorf("%s: a server has had locks, histories: %v, want %v", name, got, want)
			}
			if keys, err := server.Do("KEYS", "*"); keys != "" || err != nil {
				t.Errorf("%s: keys are left: %q, error %v", name, keys, err)
			}
		}
		if left, err := db.Do(`SELECT nspname FROM pg_namespace WHERE nspname ~ 'agent'`); left != "" || err != nil {
			t.Errorf("%s: schemas are left: %q, error %v", name, left, err)
		}
	}
}

// The run goes on while one of three nodes is dead.
func TestAgent_Redlock3_leavesNothingOnAQuorum(t *testing.T) {
	t.Parallel()
	q, histories := testservers.StartQuorum(t, 3), testservers.StartRedis(t)
	q.Nodes()[0].Kill()
	url := q.URL() + "?restart_delay=-1s"
	checkReport(t, finish(t, program(t, "-lock", url, "-store", histories.URL(), "-turns", "20", "-sessions", "2")), 2*20)
	for _, server := range append(q.Nodes()[1:], histories) {
		if keys, err := server.Do("KEYS", "*"); keys != "" || err != nil {
			t.Errorf("keys are left: %q, error %v", keys, err)
		}
	}
}

func TestConfig_aboutServers(t *testing.T) {
	const url, own = "redlock+redis://a,b,c", "on a Redis, embedded in the program"
	for _, test := range []struct{ lock, store, locks, histories, flags string }{
		{"", "", own, "on the same server", ""},
		{"redis://a", "", "on the server at -lock", "on the same server", " -lock URL"},
		{"redis://a", "redis://a", "on the server at -lock", "on the same server", " -lock URL"},
		{"", "redis://a", own, "on the server at -store", " -store URL"},
		{"redlock", "", "on a quorum of three Redis nodes, embedded in the program", own, " -lock redlock"},
		{url, "", "on the quorum at -lock", own, " -lock URL"},
		{url, "redis://a", "on the quorum at -lock", "on the server at -store", " -lock URL -store URL"},
	} {
		locks, histories, flags := config{Lock: test.lock, Store: test.store}.about()
		if locks != test.locks || histories != test.histories || flags != test.flags {
			t.Errorf("-lock %q -store %q: locks %s, histories %s, flags%s", test.lock, test.store, locks, histories, flags)
		}
	}
}

func TestAgent_leavesNothingOnASentinel(t *testing.T) {
	t.Parallel()
	s := testservers.StartSentinel(t)
	checkReport(t, finish(t, program(t, "-lock", s.URL(), "-turns", "25", "-sessions", "2")), 2*25)
	if keys, err := s.Master().Do("KEYS", "*"); keys != "" || err != nil {
		t.Errorf("keys are left: %q, error %v", keys, err)
	}
}

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
	for _, flag := range []string{"-lock URL", "-store URL", "-instances N", "-sessions N", "-turns N", "-chaos ", "-otlp ENDPOINT", "-report FILE", "(default 120)", "Exit codes"} {
		if !strings.Contains(usage, flag) {
			t.Errorf("the help does not say %q", flag)
		}
	}
}

func TestAgent_saysThatRedisCannotBeReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	address := server.Listener.Addr().String()
	server.Close() // nobody listens there now
	got := finish(t, program(t, "-lock", "redis://"+address))
	if got.code != 1 || !strings.Contains(got.stderr, "agent: no answer from Redis: ") || !strings.Contains(got.stderr, address) || !strings.Contains(got.stderr, "refused") {
		t.Errorf("exit code %d, want 1 and the cause", got.code)
	}
	if n := strings.Count(got.stderr, "\n"); n != 1 {
		t.Errorf("stderr has %d lines, want one", n)
	}
}

func TestAgent_saysThatPostgresCannotBeReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	address := server.Listener.Addr().String()
	server.Close() // the port is free now
	got := finish(t, program(t, "-lock", "postgres://u:s3cret@"+address+"/db?sslmode=disable"))
	if got.code != 1 || !strings.Contains(got.stderr, "agent: no answer from PostgreSQL: ") || !strings.Contains(got.stderr, address) ||
		!strings.Contains(got.stderr, "refused") || strings.Contains(got.stderr, "s3cret") {
		t.Errorf("exit code %d, want 1, the cause, and no password", got.code)
	}
}

func TestAgent_oneInstanceAloneDoesNoDamage(t *testing.T) {
	t.Parallel()
	got := finish(t, program(t, "-instances", "1", "-turns", "10", "-sessions", "1"))
	if got.code != 0 || !strings.Contains(got.stdout, "Without a lock nothing went wrong this time") ||
		!strings.Contains(got.stdout, "No turn had to wait") {
		t.Errorf("exit code %d, want 0 and a word about the missing damage", got.code)
	}
}

// works reports whether instances have written to a server.
func works(server *testservers.Redis) bool {
	keys, err := server.Do("KEYS", "agent-*")
	return err == nil && keys != ""
}

func TestAgent_saysThatRedisWentAwayAndLeavesTheLastPage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.html")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := testservers.StartRedis(t)
	cmd := program(t, "-lock", server.URL(), "-turns", "10000", "-report", path)
	go func() {
		testservers.Within(20*time.Second, func() bool { return works(server) })
		server.Kill()
	}()
	if got := finish(t, cmd); got.code != 1 || !strings.Contains(got.stderr, "agent: instance-") || !strings.Contains(got.stderr, "refused") {
		t.Errorf("exit code %d, want 1 and the cause", got.code)
	}
	if page, err := os.ReadFile(path); err != nil || string(page) != "before" {
		t.Errorf("error %v, the file has %q", err, page)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("error %v, and there are %v", err, files)
	}
}

// spanStore is an OpenTelemetry collector.
type spanStore struct {
	mu    sync.Mutex
	spans []stored
}

type stored struct {
	*tracepb.Span
	service, instance string
	lock              string
}

func (c *spanStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "not a trace", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		var about stored
		for _, attribute := range resource.Resource.Attributes {
			switch attribute.Key {
			case "service.name":
				about.service = attribute.Value.GetStringValue()
			case "service.instance.id":
				about.instance = attribute.Value.GetStringValue()
			case "agent.lock":
				about.lock = attribute.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				about.Span = span
				c.spans = append(c.spans, about)
			}
		}
	}
}

// check looks at the spans of the run with whole turns.
func (c *spanStore) check(t *testing.T, deliveries int) {
	t.Helper()
	traces, turns := map[string]map[string]stored{}, map[string]bool{}
	for _, s := range c.spans {
		if s.service != "belugalock-agent" || !strings.HasPrefix(s.instance, "instance-") {
			t.Fatalf("a span comes from %q, %q", s.service, s.instance)
		}
		if s.lock != "turn" {
			continue
		}
		trace := string(s.TraceId)
		if traces[trace] == nil {
			traces[trace] = map[string]stored{}
		}
		traces[trace][s.Name] = s
		turns[string(s.SpanId)] = s.Name == "lockedmemory.turn"
	}
	if len(traces) != deliveries {
		t.Errorf("%d traces of the run with whole turns, want one for each of %d turns", len(traces), deliveries)
	}
	links := 0
	for _, trace := range traces {
		for _, name := range []string{"agent.turn", "lockedmemory.turn", "distlock.acquire", "distlock.release"} {
			if trace[name].Span == nil {
				t.Errorf("a trace has no span %s", name)
				return
			}
		}
		if string(trace["lockedmemory.turn"].ParentSpanId) != string(trace["agent.turn"].SpanId) {
			t.Error("lockedmemory.turn is not part of agent.turn")
		}
		for _, name := range []string{"distlock.acquire", "load", "model", "lockedmemory.save", "distlock.release"} {
			if s := trace[name]; s.Span != nil && string(s.ParentSpanId) != string(trace["lockedmemory.turn"].SpanId) {
				t.Errorf("%s is not part of lockedmemory.turn", name)
			}
		}
		for _, link := range trace["distlock.acquire"].Links {
			links++
			if !turns[string(link.SpanId)] || string(link.TraceId) == string(trace["distlock.acquire"].TraceId) {
				t.Error("a link does not lead to another turn")
			}
		}
	}
	if links == 0 {
		t.Error("no turn is linked to the one it waited for")
	}
}

func TestAgent_saysThatTheCollectorCannotBeReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	server.Close()
	got := finish(t, program(t, "-turns", "5", "-otlp", server.URL))
	if got.code != 1 || !strings.Contains(got.stderr, server.Listener.Addr().String()) || !strings.Contains(got.stderr, "refused") {
		t.Errorf("exit code %d, want 1 and the cause", got.code)
	}
}

// Not parallel: it looks for goroutines, and sets the environment that instances inherit.
func TestCompare_leavesNoGoroutineBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Setenv(asProgram, "yes")
	cfg, err := parse([]string{"-turns", "5", "-instances", "2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(context.Background(), cfg); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := compare(ctx, cfg); err == nil || err.Error() != "interrupted" {
		t.Errorf("the error after ctx has ended is %v, want that it was interrupted", err)
	}
}
