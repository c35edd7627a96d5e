// Package crew runs parts of a measurement in processes of their own: the program starts itself again in a role, and the
// two exchange JSON values over its stdin and stdout.
//
// A program that uses it calls [Serve] before anything else, and so does TestMain of a package whose tests do.
package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// variable names the role of a process, in its environment.
const variable = "BELUGALOCK_BENCH_ROLE"

// grace is how long a member that is told to stop may take.
const grace = 5 * time.Second

// Role is the work of a member. Its ctx ends when the process that started it has ended or does not need it any more.
type Role func(ctx context.Context, lead *Line) error

// Line is one end of what connects a member with the process that started it.
type Line struct {
	in  *json.Decoder
	out *json.Encoder
}

// Send sends a value.
func (l *Line) Send(v any) error { return l.out.Encode(v) }

// Receive waits for the next value and stores it in v. It returns io.EOF if there will be none.
func (l *Line) Receive(v any) error { return l.in.Decode(v) }

// Serve does nothing in the process that a user has started. In a member it does the work of its role and ends the process:
// with exit code 1 and a text on stderr if that failed.
func Serve(roles map[string]Role) {
	name, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	// Ctrl-C in a terminal reaches every process. Whether a member should stop is for the one that started it to say.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	in, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, os.Stdin) // ends when the other process closes the line, or ends however it does
		cancel()
		feed.CloseWithError(err)
	}()
	err := fmt.Errorf("no role is called %q", name)
	if role, ok := roles[name]; ok {
		err = role(ctx, &Line{json.NewDecoder(in), json.NewEncoder(os.Stdout)})
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Member is a process in a role.
type Member struct {
	Line
	role   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout io.Reader
	ended  func() bool // whether it was told to stop by its ctx
	killed atomic.Bool // whether it was ended for being late
}

// ErrLate: a member has not answered in time.
var ErrLate = errors.New("no answer in time")

// ReceiveWithin is Receive, but a member that does not answer within d is ended, and the error is ErrLate.
func (m *Member) ReceiveWithin(d time.Duration, v any) error {
	late := time.AfterFunc(d, func() {
		m.killed.Store(true)
		_ = m.cmd.Process.Kill()
	})
	defer late.Stop()
	err := m.Receive(v)
	if err != nil && m.killed.Load() {
		return ErrLate
	}
	return err
}

// Start starts a member. When ctx ends, it is told to stop. Close it.
func Start(ctx context.Context, role string) (*Member, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), variable+"="+role)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = grace
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Member{
		Line:   Line{json.NewDecoder(stdout), json.NewEncoder(stdin)},
		role:   role,
		cmd:    cmd,
		stdin:  stdin,
		stdout: stdout,
		ended:  func() bool { return ctx.Err() != nil },
	}, nil
}

// Close ends the member, and returns how it ended if that was not as it should. Members that fail say why on stderr.
func (m *Member) Close() error {
	_ = m.stdin.Close()
	late := time.AfterFunc(grace, func() { _ = m.cmd.Process.Kill() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, m.stdout) // or it could hang on what nobody reads
	err := m.cmd.Wait()
	if err == nil || m.ended() || m.killed.Load() {
		return nil
	}
	return fmt.Errorf("a process in the role %s: %w", m.role, err)
}

// StartAll starts n members, or none.
func StartAll(ctx context.Context, n int, role string) ([]*Member, error) {
	var members []*Member
	for range n {
		m, err := Start(ctx, role)
		if err != nil {
			return nil, errors.Join(err, CloseAll(members))
		}
		members = append(members, m)
	}
	return members, nil
}

// CloseAll closes the members.
func CloseAll(members []*Member) error {
	var errs []error
	for _, m := range members {
		_ = m.stdin.Close() // all can wind up at once
	}
	for _, m := range members {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
