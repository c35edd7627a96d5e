package testservers

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait for fail-overs, so more of them than processors can.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestStartRedis_answers(t *testing.T) {
	r := StartRedis(t)
	mustDo(t, r, "PONG", "PING")
	if want := "redis://" + r.Addr() + "/0"; r.URL() != want {
		t.Errorf("URL() = %q, want %q", r.URL(), want)
	}
}

func TestStartRedis_keepsNothingOnDisk(t *testing.T) {
	r := StartRedis(t)
	mustDo(t, r, "save\n", "CONFIG", "GET", "save")
	mustDo(t, r, "appendonly\nno", "CONFIG", "GET", "appendonly")
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

func TestStartRedis_manyAtOnceAreDistinctServers(t *testing.T) {
	var wg sync.WaitGroup
	servers := make([]*Redis, 8)
	for i := range servers {
		wg.Go(func() { servers[i] = StartRedis(t) })
	}
	wg.Wait()
	for i, r := range servers {
		if r == nil {
			t.Fatal("a server did not start")
		}
		mustDo(t, r, "OK", "SET", "number", string(rune('0'+i)))
	}
	for i, r := range servers {
		mustDo(t, r, string(rune('0'+i)), "GET", "number")
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
	msg := fatalOf(t, func(tb testing.TB) { StartRedis(tb) })
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
	inner := &fakeTB{TB: t}
	msg := inner.run(func() { StartRedis(inner, "--no-such-option", "1") })
	if !strings.Contains(msg, "ended before it was ready") {
		t.Errorf("message %q does not say that the server ended", msg)
	}
	inner.runCleanups()
	if logs := inner.logs.String(); !strings.Contains(logs, "no-such-option") {
		t.Errorf("the server's log was not shown, only %q", logs)
	}
}

func TestStartRedis_cleanupStopsTheServer(t *testing.T) {
	inner := &fakeTB{TB: t}
	r := StartRedis(inner)
	r.Pause() // a stopped process has to be ended as well
	inner.runCleanups()
	mustRefuse(t, r.Addr())
}

func TestStartRedis_cleanupFollowsKill(t *testing.T) {
	inner := &fakeTB{TB: t}
	r := StartRedis(inner)
	r.Kill()
	r.Kill()
	inner.runCleanups()
}

func TestRedis_killRefusesConnections(t *testing.T) {
	r := StartRedis(t)
	r.Kill()
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
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	r.Pause()
	if _, err := io.WriteString(conn, encodeCommand([]string{"PING"})); err != nil {
		t.Fatal(err)
	}
	setReadDeadline(t, conn, 100*time.Millisecond)
	replies := bufio.NewReader(conn)
	if reply, err := readReply(replies); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("reply of a paused server: %q, %v; want a timeout", reply, err)
	}

	r.Resume()
	setReadDeadline(t, conn, 5*time.Second)
	if reply, err := readReply(replies); reply != "PONG" || err != nil {
		t.Fatalf("reply after Resume: %q, %v; want PONG", reply, err)
	}
}

func TestRedis_pauseOfADeadServerFailsTheTest(t *testing.T) {
	inner := &fakeTB{TB: t}
	r := StartRedis(inner)
	r.Kill()
	r.Pause()
	if !inner.Failed() {
		t.Error("Pause of a dead server went unnoticed")
	}
	inner.runCleanups()
}

// fatalOf returns the message with which fn fails its test.
func fatalOf(t *testing.T, fn func(testing.TB)) string {
	t.Helper()
	tb := &fakeTB{TB: t}
	msg := tb.run(func() { fn(tb) })
	if msg == "" {
		t.Fatal("the test was not failed")
	}
	return msg
}

// fakeTB stands for a test that may fail, and whose cleanups run when asked.
type fakeTB struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	fatal    string
	logs     strings.Builder
	cleanups []func()
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = true
	f.logs.WriteString(fmt.Sprintf(format, args...))
}

func (f *fakeTB) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs.WriteString(fmt.Sprintf(format, args...))
}

func (f *fakeTB) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.mu.Lock()
	f.failed = true
	f.fatal = fmt.Sprintf(format, args...)
	f.mu.Unlock()
	runtime.Goexit()
}

// run returns what fn failed with, or the empty string.
func (f *fakeTB) run(fn func()) string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
	return f.fatal
}

func (f *fakeTB) runCleanups() {
	for _, fn := range f.cleanups {
		fn()
	}
	f.cleanups = nil
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

func setReadDeadline(t *testing.T, conn net.Conn, d time.Duration) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
}

// eventuallyDo waits until a command has the reply that is wanted.
func eventuallyDo(t *testing.T, r *Redis, want string, args ...string) {
	t.Helper()
	if err := await(func() error {
		if got, err := r.Do(args...); err != nil || got != want {
			return fmt.Errorf("%s: %v: got %q, %v; want %q", r.Addr(), args, got, err, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
