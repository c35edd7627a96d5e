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
	"time"

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

func TestStartRedis_passesArgumentsAlsoAfterRestart(t *testing.T) {
	r := StartRedis(t, "--maxmemory", "8mb", "--databases", "3")
	for range 2 {
		mustDo(t, r, "maxmemory\n8388608", "CONFIG", "GET", "maxmemory")
		mustDo(t, r, "databases\n3", "CONFIG", "GET", "databases")
		r.Restart()
	}
}

func TestStartRedis_isReadyWhenItDemandsAPassword(t *testing.T) {
	r := StartRedis(t, "--requirepass", "secret")
	if _, err := r.Do("PING"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("PING without a password: error %v, want NOAUTH", err)
	}
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

func TestRun_answersUntilStop(t *testing.T) {
	r, stop, err := Run()
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
	if _, _, err := Run("--no-such-option", "1"); err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("%v: want the server's log", err)
	}
}

func TestStartRedis_failsWithTheLogWhenTheServerRefusesItsArguments(t *testing.T) {
	var tb failing
	msg := tb.message(func() { StartRedis(&tb, "--no-such-option", "1") })
	if !strings.Contains(msg, "ended before it was ready") {
		t.Errorf("message %q does not say that the server ended", msg)
	}
	if logs := tb.logs.String(); !strings.Contains(logs, "no-such-option") {
		t.Errorf("the server's log was not shown, only %q", logs)
	}
}

func TestStartRedis_cleanupStopsTheServer(t *testing.T) {
	var tb forTests
	r := StartRedis(&tb)
	r.Pause() // a stopped process has to be ended as well
	tb.end()
	mustRefuse(t, r.Addr())
}

func TestRedis_restartLosesTheData(t *testing.T) {
	r := StartRedis(t)
	addr := r.Addr()
	restart := map[string]func(){
		"running": r.Restart,
		"killed":  func() { r.Kill(); r.Restart() },
		"paused":  func() { r.Pause(); r.Restart() },
	}
	for state, restart := range restart {
		mustDo(t, r, "OK", "SET", "key", "value")
		restart()
		if r.Addr() != addr {
			t.Errorf("restart of a %s server: address %s, want %s", state, r.Addr(), addr)
		}
		mustDo(t, r, "0", "EXISTS", "key")
	}
}

func TestRedis_pausedAnswersNothingUntilResumed(t *testing.T) {
	r := StartRedis(t)
	r.Pause()
	if reply, err := do(r.Addr(), 100*time.Millisecond, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("reply of a paused server: %q, %v; want a timeout", reply, err)
	}
	r.Resume()
	mustDo(t, r, "PONG", "PING")
}

// failing is a test that fails.
type failing struct {
	forTests
	logs strings.Builder
}

func (f *failing) Failed() bool { return true }

func (f *failing) Logf(format string, a ...any) { fmt.Fprintf(&f.logs, format, a...) }

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
