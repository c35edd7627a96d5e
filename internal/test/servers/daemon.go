package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/belugalock/belugalock/internal/test/child"
)

// daemon is a server that refuses to run as root: PostgreSQL or PgBouncer. Its methods are safe for
// concurrent use; they report failures to the test that started the server.
type daemon struct {
	tb      testing.TB
	program string
	dir     string // belongs to the user that the program runs as
	port    int
	command func() (path string, args []string) // for each start
	ready   func() bool
	quit    syscall.Signal // ends the program, whatever its clients do

	mu   sync.Mutex // serialises what starts, stops and signals the process
	proc *process
}

// newDaemon prepares a server and its cleanup.
func newDaemon(tb testing.TB, program string, quit syscall.Signal) *daemon {
	tb.Helper()
	dir, err := unprivilegedDir()
	if err != nil {
		tb.Fatalf("directory of a %s: %v", program, err)
	}
	d := &daemon{tb: tb, program: program, dir: dir, quit: quit}
	tb.Cleanup(d.cleanup)
	return d
}

// unprivilegedDir makes a directory for the files of a daemon. A test's own directory does not do:
// its parent is closed to other users.
func unprivilegedDir() (string, error) {
	dir, err := os.MkdirTemp("", "testservers")
	if err != nil {
		return "", err
	}
	return dir, giveAway(dir)
}

// launch starts the server on a port of its choice and returns once it is ready.
func (d *daemon) launch() {
	d.tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for range portAttempts {
		if d.port, err = freePort(); err != nil {
			break
		}
		if err = d.start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		d.tb.Fatalf("start %s: %v", d.program, err)
	}
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
	d.proc.kill()
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
	d.resume()
	_ = d.proc.cmd.Process.Signal(d.quit)
	if !Within(startTimeout, d.proc.gone) {
		d.kill()
	}
}

// Restart starts the server again with the same port and settings, and returns once it is ready. A
// server that still runs is stopped first. The data is kept.
func (d *daemon) Restart() {
	d.tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
	var err error
	Within(startTimeout, func() bool { err = d.start(); return !errors.Is(err, errPortTaken) })
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
	signalAll(children, sigStop)
	if err != nil || !Within(stopTimeout, func() bool { return haveStopped(children) }) {
		d.tb.Errorf("pause %s: %v", d.program, err)
	}
}

// Resume lets a paused server go on. It then answers what it was sent while it was paused.
func (d *daemon) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resume()
}

func (d *daemon) resume() {
	signalAll(childrenOf(d.proc.cmd.Process.Pid), sigCont)
	_ = child.Continue(d.proc.cmd.Process)
}

// start runs the server on d.port. It returns errPortTaken if something else listens there.
func (d *daemon) start() error {
	path, args := d.command()
	user, err := unprivileged()
	if err != nil {
		return err
	}
	if d.proc, err = startProcess(path, args, d.dir, d.log(), user); err != nil {
		return err
	}
	ended := false
	inTime := Within(startTimeout, func() bool { ended = d.proc.gone(); return ended || d.ready() })
	switch {
	case ended && strings.Contains(d.proc.output(), "Address already in use"):
		return errPortTaken
	case ended:
		return fmt.Errorf("it ended before it was ready: %v\n%s", d.proc.cmd.ProcessState, d.proc.logTail())
	case !inTime:
		d.kill()
		return fmt.Errorf("not ready at %s within %v\n%s", d.Addr(), startTimeout, d.proc.logTail())
	}
	return nil
}

func (d *daemon) log() string { return filepath.Join(d.dir, d.program+".log") }

func (d *daemon) cleanup() {
	d.Kill()
	if d.proc != nil && d.tb.Failed() {
		d.tb.Logf("log of %s at %s:\n%s", d.program, d.Addr(), d.proc.logTail())
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.tb.Errorf("remove the files of %s: %v", d.program, err)
	}
}
