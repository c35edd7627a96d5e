// Package instances runs instances of a program as processes: the program starts itself again.
package instances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// variable is the number of an instance, in its environment.
const variable = "BELUGALOCK_EXAMPLE_INSTANCE"

// grace is how long an instance that is told to stop may take.
const grace = 3 * time.Second

// Instance is one process. What it is told with the methods reaches it if it has not ended; they
// are for the functions of Orders.
type Instance[T any] struct {
	Number int // from 1
	stdin  io.Writer
	cmd    *exec.Cmd
	killed bool
	pause  func(time.Duration)
}

// Give gives the instance a task. It takes one at a time.
func (i *Instance[T]) Give(task T) { i.tell(task) }

// Dismiss tells the instance that there will be no more tasks.
func (i *Instance[T]) Dismiss() { i.tell(nil) }

func (i *Instance[T]) tell(task any) { _ = json.NewEncoder(i.stdin).Encode(task) } // should it have ended, Run tells why

// Kill ends the instance where it is. Another one takes its place.
func (i *Instance[T]) Kill() error {
	i.killed = true
	return i.cmd.Process.Kill()
}

// Pause stops the instance where it is, for a while. Orders.Resumed is called when it goes on.
func (i *Instance[T]) Pause(d time.Duration) error {
	i.pause(d)
	return stop(i.cmd.Process)
}

// Orders say what becomes of instances. The functions are called by one goroutine at a time.
type Orders[T, L any] struct {
	Begun   func(*Instance[T])          // an instance has started
	Line    func(*Instance[T], L) error // it has written a JSON value to stdout; an error ends all instances
	Killed  func(*Instance[T])          // it was killed, and all its lines were read
	Resumed func(*Instance[T])          // it was paused, and goes on
	Pauses  bool                        // instances may be paused
}

// Run starts n instances with cfg, and returns when all have ended. The first one that fails, and
// was not killed by order, ends the others, as ctx does; what has not ended three seconds later is
// killed.
func Run[C, T, L any](ctx context.Context, n int, cfg C, orders Orders[T, L]) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var all sync.WaitGroup
	for number := range n {
		all.Go(func() {
			for killed := true; killed; {
				i := &Instance[T]{Number: number + 1}
				err := start(ctx, i, cfg, orders, func(call func() error) {
					mu.Lock()
					defer mu.Unlock()
					if err := call(); err != nil {
						cancel(err)
					}
				})
				mu.Lock()
				if killed = i.killed && ctx.Err() == nil; killed {
					orders.Killed(i)
				} else if err != nil {
					cancel(fmt.Errorf("instance-%d: %w", i.Number, err))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if outer.Err() != nil {
		return errors.New("interrupted")
	}
	return context.Cause(ctx)
}

// start runs one instance to its end.
func start[C, T, L any](ctx context.Context, i *Instance[T], cfg C, orders Orders[T, L], call func(func() error)) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(i.Number))
	cmd.Stderr = os.Stderr
	if orders.Pauses {
		prepare(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = func() error {
		_ = resume(cmd.Process)
		return stdin.Close()
	}
	cmd.WaitDelay = grace
	if err := cmd.Start(); err != nil {
		return err
	}
	i.stdin, i.cmd = stdin, cmd
	ended := make(chan struct{})
	var pauses sync.WaitGroup
	defer pauses.Wait()
	defer close(ended)
	i.pause = func(d time.Duration) {
		pauses.Go(func() {
			select {
			case <-time.After(d):
			case <-ended:
				return
			}
			call(func() error {
				_ = resume(cmd.Process) // unless it has ended
				orders.Resumed(i)
				return nil
			})
		})
	}
	i.tell(cfg)
	call(func() error {
		orders.Begun(i)
		return nil
	})
	for lines := json.NewDecoder(stdout); ; {
		var l L
		if err := lines.Decode(&l); err != nil {
			return wait(cmd, err)
		}
		call(func() error { return orders.Line(i, l) })
	}
}

// wait returns how an instance ended, after its lines have.
func wait(cmd *exec.Cmd, lines error) error {
	err := cmd.Wait()
	if err == nil && lines != io.EOF {
		return fmt.Errorf("its lines make no sense: %w", lines)
	}
	return err
}
