package servers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	// logTailBytes bounds what a failed test prints of a server's log: the failure above it stays
	// in sight.
	logTailBytes = 1 << 10
)

var errPortTaken = errors.New("the port was taken by another process")

// daemon is a server on a port of 127.0.0.1. Its methods are safe for concurrent use; they report
// failures to the test that started the server.
type daemon struct {
	tb      testing.TB
	program string
	dir     string // of its files and its log
	port    int
	command func(more []string) (path string, args []string) // for each start
	ready   func() bool
	taken   string         // what its log says of a port that is taken
	quit    syscall.Signal // ends the program, whatever its clients do
	attr    *syscall.SysProcAttr

	mu     sync.Mutex // serialises what starts, stops and signals the process
	proc   *process
	paused bool
}

// process is one run of a daemon.
type process struct {
	cmd     *exec.Cmd
	logFrom int64         // where this run's output begins in the log
	exited  chan struct{} // closed once the server is gone and reaped
}

// gone tells whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// newDaemon prepares a server and its cleanup.
func newDaemon(tb testing.TB, program, dir string, quit syscall.Signal) *daemon {
	d := &daemon{tb: tb, program: program, dir: dir, quit: quit, attr: ownGroup()}
	tb.Cleanup(func() {
		d.Kill()
		if d.proc != nil && tb.Failed() {
			tb.Logf("log of %s at %s:\n%s", program, d.Addr(), d.logTail())
		}
	})
	return d
}

// freePort returns a loopback port that nothing listened on a moment ago.
func freePort() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// launch starts the server on a port of its choice and returns once it is ready.
func (d *daemon) launch() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range portAttempts {
		if d.port, err = freePort(); err != nil {
			break
		}
		if err = d.start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", d.program, err)
	}
	return nil
}

// Addr returns the server's host and port. They stay the same after Restart.
func (d *daemon) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)) }

// Kill ends the server and all its processes at once, as a crash would, and returns when they are
// gone. It does nothing to a server that has ended.
func (d *daemon) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kill()
}

func (d *daemon) kill() {
	if d.proc == nil || d.proc.gone() {
		return
	}
	// A stopped process starts no more children.
	_ = child.Pause(d.proc.cmd.Process, d.proc.exited)
	children := childrenOf(d.proc.cmd.Process.Pid)
	signalAll(children, syscall.SIGKILL)
	_ = d.proc.cmd.Process.Kill() // fails only if it has ended
	<-d.proc.exited
	Within(stopTimeout, func() bool { return haveEnded(children) })
}

// Stop ends the server in order, without waiting for its clients, and returns when it is gone.
func (d *daemon) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
}

func (d *daemon) stop() {
	if d.proc.gone() {
		return
	}
	_ = d.proc.cmd.Process.Signal(d.quit)
	_ = d.resume() // a paused process does not see the signal
	if !Within(startTimeout, d.proc.gone) {
		d.kill()
	}
}

// Restart starts the server again with the same port and arguments, and returns once it is ready. A
// server that still runs is stopped first. PostgreSQL keeps its data. That of a Redis is gone; the
// role that it had among the nodes of a Sentinel or Cluster is not.
func (d *daemon) Restart() {
	d.tb.Helper()
	d.RestartWith()
}

// RestartWith is Restart, this time with more arguments.
func (d *daemon) RestartWith(args ...string) {
	d.tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
	// A copy that a Redis had forked, to send its data to a replica, can hold the port a moment
	// longer.
	var err error
	Within(startTimeout, func() bool { err = d.start(args...); return !errors.Is(err, errPortTaken) })
	if err != nil {
		d.tb.Fatalf("restart %s: %v", d.program, err)
	}
}

// Pause stops the execution of all the server's processes until Resume. Its connections stay open
// and the kernel still accepts new ones, but nothing is answered.
func (d *daemon) Pause() {
	d.tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	// First the process that starts the others.
	err := child.Pause(d.proc.cmd.Process, d.proc.exited)
	children := childrenOf(d.proc.cmd.Process.Pid)
	signalAll(children, child.SigStop)
	if err != nil || !Within(stopTimeout, func() bool { return haveStopped(children) }) {
		d.tb.Errorf("pause %s: %v", d.program, err)
		return
	}
	d.paused = true
}

// Resume lets a paused server go on. It then answers what it was sent while it was paused.
func (d *daemon) Resume() {
	d.tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.resume(); err != nil {
		d.tb.Errorf("resume %s: %v", d.program, err)
	}
}

func (d *daemon) resume() error {
	signalAll(childrenOf(d.proc.cmd.Process.Pid), child.SigCont)
	d.paused = false
	return child.Continue(d.proc.cmd.Process)
}

// up tells whether the server could answer: it has neither ended nor is it paused.
func (d *daemon) up() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.proc.gone() && !d.paused
}

// start runs the server on d.port, this time with more arguments. It returns errPortTaken if
// something else listens there.
func (d *daemon) start(more ...string) error {
	if err := d.run(more); err != nil {
		return err
	}
	ended := false
	inTime := Within(startTimeout, func() bool { ended = d.proc.gone(); return ended || d.ready() })
	switch {
	case ended && strings.Contains(d.output(), d.taken):
		return errPortTaken
	case ended:
		return fmt.Errorf("it ended before it was ready: %v\n%s", d.proc.cmd.ProcessState, d.logTail())
	case !inTime:
		d.kill()
		return fmt.Errorf("not ready at %s within %v\n%s", d.Addr(), startTimeout, d.logTail())
	}
	return nil
}

// run starts the program, and appends its output to the log.
func (d *daemon) run(more []string) error {
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the program has its own descriptor once it is started
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	path, args := d.command(more)
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = d.dir, log, log, d.attr
	proc := &process{cmd: cmd, logFrom: size, exited: make(chan struct{})}
	if err := child.Start(cmd, func() {
		defer close(proc.exited)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}); err != nil {
		return err
	}
	d.proc, d.paused = proc, false
	return nil
}

func (d *daemon) log() string { return filepath.Join(d.dir, d.program+".log") }

// output returns what this run has logged so far.
func (d *daemon) output() string {
	text, err := os.ReadFile(d.log())
	if err != nil {
		return err.Error()
	}
	return string(text[min(int(d.proc.logFrom), len(text)):])
}

// logTail returns the end of what this run has logged.
func (d *daemon) logTail() string {
	text := d.output()
	return text[max(0, len(text)-logTailBytes):]
}
