package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/child"
)

const (
	startTimeout = 10 * time.Second
	stopTimeout  = 3 * time.Second
	doTimeout    = 5 * time.Second
	portAttempts = 10
)

// The programs, and what each writes to its log once its port is bound.
var readyLine = map[string]string{
	"redis-server":   "Ready to accept connections",
	"redis-sentinel": "Sentinel ID is",
}

var errPortTaken = errors.New("the port was taken by another process")

// Redis is one redis-server without persistence, alone or as a node of a
// Sentinel or Cluster, or one redis-sentinel. Its methods are safe for concurrent
// use; they report failures to the test that started the server.
type Redis struct {
	tb      testing.TB
	program string
	path    string
	config  string // the file that the server rewrites to remember its role; empty: none
	args    []string
	setup   []string // a command for each start; none
	dir     string
	port    int
	apart   bool // whether a Ctrl-C in the terminal does not reach it
	cluster bool
	busPort int // of a cluster's node, for the other nodes

	mu     sync.Mutex // serialises what starts, stops and signals the process
	proc   *process
	paused bool
}

// StartRedis starts a redis-server on a free port of 127.0.0.1 and returns once
// it answers. The args are added to its command line, as in
//
//	servers.StartRedis(t, "--maxmemory", "8mb")
//
// They must leave the port, bind address and log alone. It fails the test if
// redis-server is not installed or does not answer within 10 seconds.
func StartRedis(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	r := newServer(tb, "redis-server", args)
	launch(tb, r)
	return r
}

// Run is StartRedis for a program that is not a test. A Ctrl-C in the terminal reaches the program
// alone. Stop ends the server and removes its files.
func Run(args ...string) (r *Redis, stop func(), err error) {
	return run(func(tb testing.TB) *Redis {
		r := newServer(tb, "redis-server", args)
		r.apart = true
		launch(tb, r)
		return r
	})
}

// newServer prepares a server and its cleanup. It fails the test if the program
// is not installed.
func newServer(tb testing.TB, program string, args []string) *Redis {
	tb.Helper()
	r, err := prepare(program, tb.TempDir(), args)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	r.tb = tb
	// Registered after TempDir, so that it runs before the directory is removed.
	tb.Cleanup(r.cleanup)
	return r
}

func prepare(program, dir string, args []string) (*Redis, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("%s is needed but was not found: "+
			"run `make deps`, or install it, for example with `apt-get install %[1]s` (%w)", program, err)
	}
	return &Redis{program: program, path: path, args: slices.Clone(args), dir: dir}, nil
}

// remember gives the server a configuration file, in which it keeps the role it
// has come to have.
func (r *Redis) remember(tb testing.TB) {
	tb.Helper()
	r.config = filepath.Join(r.dir, r.program+".conf")
	if err := os.WriteFile(r.config, nil, 0o600); err != nil {
		tb.Fatalf("configuration of a %s: %v", r.program, err)
	}
}

// launch starts servers side by side and returns once all of them answer. It
// fails the test if one does not.
func launch(tb testing.TB, servers ...*Redis) {
	tb.Helper()
	if len(servers) > 1 {
		// One after the other, as their own cleanups would end them, they take
		// long: each looks for a SIGTERM ten times a second, and a master first
		// waits for its replicas.
		tb.Cleanup(func() { each(servers, func(_ int, r *Redis) { r.Kill() }) })
	}
	errs := make([]error, len(servers))
	each(servers, func(i int, r *Redis) { errs[i] = r.launch() })
	if err := errors.Join(errs...); err != nil {
		tb.Fatalf("%v", err)
	}
}

// each calls fn for all servers at once and returns when all calls have.
func each(servers []*Redis, fn func(int, *Redis)) {
	var wg sync.WaitGroup
	for i, r := range servers {
		wg.Go(func() { fn(i, r) })
	}
	wg.Wait()
}

// launch starts the server on ports of its choice.
func (r *Redis) launch() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for range portAttempts {
		if r.port, err = freePort(); err != nil {
			break
		}
		if r.busPort, err = freePort(); err != nil {
			break
		}
		if err = r.start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", r.program, err)
	}
	return nil
}

// freePort returns a loopback port that nothing listened on a moment ago.
func freePort() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Addr returns the server's host and port. They stay the same after Restart.
func (r *Redis) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))
}

// Addrs returns Addr, as a Topology does.
func (r *Redis) Addrs() []string { return []string{r.Addr()} }

// Nodes returns the server itself, as a Topology does.
func (r *Redis) Nodes() []*Redis { return []*Redis{r} }

// URL returns the server's address as a redis:// URL of database 0.
func (r *Redis) URL() string {
	return "redis://" + r.Addr() + "/0"
}

// Do sends one command over a connection of its own and returns the reply: the
// text of a simple or bulk string, the digits of an integer, the elements of an
// array joined by newlines. A nil reply is the empty string. An error reply is
// returned as the error, with the server's text. Do gives up after 5 seconds.
func (r *Redis) Do(args ...string) (string, error) {
	return do(r.Addr(), doTimeout, args...)
}

// Kill ends the server at once, as a crash would, and returns when it is gone.
// It does nothing to a server that has ended.
func (r *Redis) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc != nil {
		r.proc.kill()
	}
}

// Restart starts the server again with the same port and arguments, and returns
// once it answers. A server that still runs is stopped first. The data is gone;
// the role that it had among the nodes of a Sentinel or Cluster is not.
func (r *Redis) Restart() {
	r.tb.Helper()
	r.RestartWith()
}

// RestartWith is Restart, this time with more arguments.
func (r *Redis) RestartWith(args ...string) {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc.stop(stopTimeout)
	// A copy that the server had forked, to send its data to a replica, can hold the port a moment
	// longer than it.
	var err error
	Within(startTimeout, func() bool { err = r.start(args...); return !errors.Is(err, errPortTaken) })
	if err != nil {
		r.tb.Fatalf("restart %s: %v", r.program, err)
	}
}

// Pause stops the server's execution until Resume. Its connections stay open and
// new ones are still accepted by the kernel, but nothing is answered.
func (r *Redis) Pause() {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := child.Pause(r.proc.cmd.Process, r.proc.exited); err != nil {
		r.tb.Errorf("pause %s: %v", r.program, err)
		return
	}
	r.paused = true
}

// Resume lets a paused server go on. It then answers what it was sent meanwhile.
func (r *Redis) Resume() {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := child.Continue(r.proc.cmd.Process); err != nil {
		r.tb.Errorf("resume %s: %v", r.program, err)
		return
	}
	r.paused = false
}

// up tells whether the server could answer: it has neither ended nor is it
// paused.
func (r *Redis) up() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.proc.gone() && !r.paused
}

// start runs the server on r.port, this time with more arguments. It returns
// errPortTaken if something else listens there.
func (r *Redis) start(more ...string) error {
	var args []string
	if r.config != "" {
		args = append(args, r.config)
	}
	args = append(args,
		"--port", strconv.Itoa(r.port),
		"--bind", "127.0.0.1",
		"--dir", r.dir,
		"--save", "",
		"--appendonly", "no",
	)
	if r.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(r.busPort))
	}
	var attr *syscall.SysProcAttr
	if r.apart {
		attr = ownGroup()
	}
	proc, err := startProcess(r.path, slices.Concat(args, r.args, more), r.dir, filepath.Join(r.dir, r.program+".log"), attr)
	if err != nil {
		return err
	}
	r.proc, r.paused = proc, false
	err = r.waitReady()
	if err == nil && len(r.setup) > 0 {
		_, err = r.Do(r.setup...)
	}
	if err != nil {
		proc.kill()
		return err
	}
	return nil
}

func (r *Redis) waitReady() error {
	ended := false
	inTime := Within(startTimeout, func() bool { ended = r.proc.gone(); return ended || r.ready() })
	switch {
	case ended && strings.Contains(r.proc.output(), "Failed listening on port"):
		return errPortTaken
	case ended:
		return fmt.Errorf("it ended before it was ready: %v", r.proc.cmd.ProcessState)
	case !inTime:
		return fmt.Errorf("no answer from %s within %v", r.Addr(), startTimeout)
	}
	return nil
}

// ready asks the log first. An answer alone does not tell whose it is: when two
// tests have chosen the same port, the loser would take the winner's server for
// its own. The log line is written after the port was bound.
func (r *Redis) ready() bool {
	if !strings.Contains(r.proc.output(), readyLine[r.program]) {
		return false
	}
	_, err := do(r.Addr(), time.Second, "PING")
	// A server that demands a password refuses the PING, and is ready.
	var refused replyError
	return err == nil || errors.As(err, &refused)
}

func (r *Redis) cleanup() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return
	}
	r.proc.stop(stopTimeout)
	if r.tb.Failed() {
		r.tb.Logf("log of %s at %s:\n%s", r.program, r.Addr(), r.proc.logTail())
	}
}
