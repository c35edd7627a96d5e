package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

const (
	// grace is the time a child has to end on request.
	grace = 3 * time.Second
	// stderrBytes bounds what Stderr returns.
	stderrBytes = 64 << 10
)

// Child is a process of this program in a role. Its methods may be called at any time, in any goroutine.
type Child struct {
	*Line
	role    string
	cmd     *exec.Cmd
	stdin   io.Closer
	stdout  *os.File
	stderr  tail
	done    chan struct{}
	err     error       // valid after done
	ordered atomic.Bool // the end is the caller's wish, however the child ended
	unwatch func() bool // of ctx
}

// StartRole starts this program again in a role and sends config, which [Role] receives. The
// child's stderr is copied to stderr, unless that is nil. When ctx ends, the child ends as by
// [Child.Close]. Close it anyway.
func StartRole(ctx context.Context, role string, config any, stderr io.Writer) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return StartProgram(ctx, program, role, config, stderr)
}

// StartProgram is StartRole for another program that calls [Serve].
func StartProgram(ctx context.Context, program, role string, config any, stderr io.Writer) (*Child, error) {
	c := &Child{role: role, cmd: exec.Command(program), done: make(chan struct{})}
	// The race detector lets a process sleep for a second at its end, unless told not to.
	c.cmd.Env = append([]string{"GORACE=atexit_sleep_ms=0"}, append(os.Environ(), variable+"="+role)...)
	c.cmd.Stderr = &c.stderr
	if stderr != nil {
		c.cmd.Stderr = io.MultiWriter(&c.stderr, stderr)
	}
	c.cmd.WaitDelay = grace
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Unlike cmd.StdoutPipe, this pipe outlives cmd.Wait: a dead child's last values can still be received.
	stdout, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	c.cmd.Stdout = write
	c.Line, c.stdin, c.stdout = newLine(stdout, stdin), stdin, stdout
	err = Start(c.cmd, func() {
		c.err = c.cmd.Wait()
		close(c.done)
	})
	_ = write.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(err, stdin.Close(), stdout.Close())
	}
	c.unwatch = context.AfterFunc(ctx, func() {
		c.ordered.Store(true)
		c.end()
	})
	_ = c.Send(config) // fails only if the child has ended, which Done and Err show
	return c, nil
}

// ReceiveWithin is Receive, but it kills a child that does not answer within d. The error is then
// os.ErrDeadlineExceeded.
func (c *Child) ReceiveWithin(d time.Duration, v any) error {
	late := time.AfterFunc(d, c.Kill)
	err := c.Receive(v)
	if !late.Stop() {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns how the child ended: nil for exit code 0. Call it after Done.
func (c *Child) Err() error { return c.err }

// Stderr returns the last 64 KiB that the child has written to stderr. Call it after Done.
func (c *Child) Stderr() string { return string(c.stderr) }

// Signal sends a signal. A child that has ended is an error.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Kill ends the child at once.
func (c *Child) Kill() {
	c.ordered.Store(true)
	_ = c.cmd.Process.Kill() // fails only if it has ended
}

// Pause stops the child until Continue, see [Pause].
func (c *Child) Pause() error { return Pause(c.cmd.Process, c.done) }

// Continue lets a paused child go on.
func (c *Child) Continue() error { return Continue(c.cmd.Process) }

// Stop asks the child to end: the ctx of its work ends, once the work has received all that was
// sent.
func (c *Child) Stop() { _ = c.stdin.Close() }

// Close stops the child, kills it 3 s later, and returns when it has ended. The error says how the
// child ended: nil for exit code 0, or if ctx, Kill or ReceiveWithin ended the child.
func (c *Child) Close() error {
	c.unwatch()
	drained := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, c.stdout) // or a full pipe could keep the child from ending
		close(drained)
	}()
	c.end()
	_ = c.stdout.Close()
	<-drained
	if c.err == nil || c.ordered.Load() {
		return nil
	}
	return fmt.Errorf("a process in the role %s: %w", c.role, c.err)
}

// end stops the child, and kills it if it does not end.
func (c *Child) end() {
	c.Stop()
	_ = c.Continue()
	late := time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
	<-c.done
	late.Stop()
}

// tail is the end of a text.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-stderrBytes):]
	return len(p), nil
}
