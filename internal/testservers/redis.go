package testservers

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	startTimeout = 10 * time.Second
	stopTimeout  = 3 * time.Second
	pauseTimeout = 5 * time.Second
	doTimeout    = 5 * time.Second
	portAttempts = 10
)

var errPortTaken = errors.New("the port was taken by another process")

// Redis is one redis-server without persistence. Its methods are safe for
// concurrent use; they report failures to the test that started the server.
type Redis struct {
	tb   testing.TB
	path string
	args []string
	dir  string
	port int

	mu   sync.Mutex // serialises what starts, stops and signals the process
	proc *process
}

// StartRedis starts a redis-server on a free port of 127.0.0.1 and returns once
// it answers. The args are added to its command line, as in
//
//	testservers.StartRedis(t, "--maxmemory", "8mb")
//
// They must leave the port, bind address, working directory and log alone. It
// fails the test if redis-server is not installed or does not answer within 10
// seconds.
func StartRedis(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Fatalf("redis-server is needed but was not found: "+
			"run `make deps`, or install it, for example with `apt-get install redis-server` (%v)", err)
	}

	r := &Redis{tb: tb, path: path, args: slices.Clone(args), dir: tb.TempDir()}
	// Registered after TempDir, so that it runs before the directory is removed.
	tb.Cleanup(r.cleanup)

	r.mu.Lock()
	defer r.mu.Unlock()
	for range portAttempts {
		if r.port, err = freePort(); err != nil {
			break
		}
		if err = r.start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		tb.Fatalf("start redis-server: %v", err)
	}
	return r
}

// Addr returns the server's host and port. They stay the same after Restart.
func (r *Redis) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))
}

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
	r.proc.kill()
}

// Restart starts the server again with the same port and arguments, and returns
// once it answers. A server that still runs is stopped first. The data is gone.
func (r *Redis) Restart() {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc.stop(stopTimeout)
	if err := r.start(); err != nil {
		r.tb.Fatalf("restart redis-server: %v", err)
	}
}

// Pause stops the server's execution until Resume. Its connections stay open and
// new ones are still accepted by the kernel, but nothing is answered.
func (r *Redis) Pause() {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.proc.pause(pauseTimeout); err != nil {
		r.tb.Errorf("pause redis-server: %v", err)
	}
}

// Resume lets a paused server go on. It then answers what it was sent meanwhile.
func (r *Redis) Resume() {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.proc.resume(); err != nil {
		r.tb.Errorf("resume redis-server: %v", err)
	}
}

// start runs the server on r.port. It returns errPortTaken if something else
// listens there.
func (r *Redis) start() error {
	args := append([]string{
		"--port", strconv.Itoa(r.port),
		"--bind", "127.0.0.1",
		"--dir", r.dir,
		"--save", "",
		"--appendonly", "no",
	}, r.args...)
	proc, err := startProcess(r.path, args, r.dir, filepath.Join(r.dir, "redis-server.log"))
	if err != nil {
		return err
	}
	r.proc = proc
	if err := r.waitReady(); err != nil {
		proc.kill()
		return err
	}
	return nil
}

func (r *Redis) waitReady() error {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !r.ready() {
		select {
		case <-r.proc.exited:
			if strings.Contains(r.proc.output(), "Failed listening on port") {
				return errPortTaken
			}
			return fmt.Errorf("it ended before it was ready: %v", r.proc.cmd.ProcessState)
		case <-deadline.C:
			return fmt.Errorf("no answer from %s within %v", r.Addr(), startTimeout)
		case <-tick.C:
		}
	}
	return nil
}

// ready asks the log first. An answer alone does not tell whose it is: when two
// tests have chosen the same port, the loser would take the winner's server for
// its own. The log line is written after the port was bound.
func (r *Redis) ready() bool {
	if !strings.Contains(r.proc.output(), "Ready to accept connections") {
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
		r.tb.Logf("log of redis-server at %s:\n%s", r.Addr(), r.proc.logTail())
	}
}
