package servers

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait for failovers, so more of them than processors can.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestStartRedis_refusesAnAnswerFromAnotherServerOnItsPort(t *testing.T) {
	other := StartRedis(t)
	r := newServer(t, "redis-server", nil)
	r.port = other.port
	if err := r.start(); !errors.Is(err, errPortTaken) {
		t.Fatalf("start on a taken port: %v, want %v", err, errPortTaken)
	}
	mustDo(t, other, "PONG", "PING")
}

func TestStartRedis_saysWhatIsMissingAndHowToGetIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var tb failing
	msg := tb.message(func() { StartRedis(&tb) })
	for _, want := range []string{"redis-server", "make deps", "apt-get install redis-server"} {
		if !strings.Contains(msg, want) {
			t.Errorf("message %q does not contain %q", msg, want)
		}
	}
}

func TestForProgram_answersUntilStop(t *testing.T) {
	start := func(args ...string) (*Redis, func(), error) {
		return ForProgram(func(tb testing.TB) *Redis { return StartRedis(tb, args...) })
	}
	r, stop, err := start()
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, r, "PONG", "PING")
	if !strings.Contains(r.Info("redis_version"), ".") {
		t.Errorf("its version is %q", r.Info("redis_version"))
	}
	stop()
	mustRefuse(t, r.Addr())
	if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
	if _, _, err := start("--no-such-option", "1"); err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("%v: want the server's log", err)
	}
}

func TestStartRedis_cleanupStopsTheServer(t *testing.T) {
	var tb forTests
	r := StartRedis(&tb)
	r.Pause() // a stopped process has to be ended as well
	tb.end()
	mustRefuse(t, r.Addr())
}

func TestRedis_restart_keepsArgumentsNotData(t *testing.T) {
	r := StartRedis(t, "--maxmemory", "8mb")
	addr := r.Addr()
	for state, restart := range map[string]func(){
		"running": r.Restart,
		"killed":  func() { r.Kill(); r.Restart() },
		"paused":  func() { r.Pause(); r.Restart() },
	} {
		mustDo(t, r, "OK", "SET", "key", "value")
		restart()
		if r.Addr() != addr {
			t.Errorf("restart of a %s server: address %s, want %s", state, r.Addr(), addr)
		}
		mustDo(t, r, "0", "EXISTS", "key")
		mustDo(t, r, "maxmemory\n8388608", "CONFIG", "GET", "maxmemory")
	}
}

func TestDo_carriesAnyBytesBothWays(t *testing.T) {
	r := StartRedis(t)
	value := "a\r\nb\x00c €"
	mustDo(t, r, "OK", "SET", "key", value)
	mustDo(t, r, value, "GET", "key")
	mustDo(t, r, "", "GET", "absent")
	mustDo(t, r, "1\n2\n3", "EVAL", "return {1, '2', {3}}", "0")
	if _, err := r.Do("NO-SUCH-COMMAND"); err == nil || !strings.HasPrefix(err.Error(), "ERR unknown command") {
		t.Errorf("unknown command: error %v, want the server's", err)
	}
}

// failing is a test that fails.
type failing struct{ forTests }

func (f *failing) Failed() bool { return true }

// message returns what fn fails with. By then the cleanups have run.
func (f *failing) message(fn func()) (text string) {
	defer f.end()
	defer func() { text = fmt.Sprint(recover()) }()
	fn()
	return ""
}

func mustDo(t *testing.T, r *Redis, want string, args ...string) {
	t.Helper()
	got, err := r.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if got != want {
		t.Fatalf("%v: got %q, want %q", args, got, want)
	}
}

func mustRefuse(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial %s: %v, want connection refused", addr, err)
	}
}
