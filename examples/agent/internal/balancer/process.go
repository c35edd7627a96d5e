package balancer

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

// instance is one process: this program starts itself again.
type instance struct {
	number int // from 1
	stdin  io.Writer
	cmd    *exec.Cmd
	killed bool
	ended  chan struct{}
	pauses sync.WaitGroup
}

// tell writes the config, then a delivery at a time, then null. If the instance has ended, run says why.
func (i *instance) tell(what any) { _ = json.NewEncoder(i.stdin).Encode(what) }

// kill ends the instance where it is. Another one takes its place.
func (i *instance) kill() error {
	i.killed = true
	return i.cmd.Process.Kill()
}

// pause stops the instance where it is, for a while. Then it calls resumed.
func (i *instance) pause(d time.Duration, resumed func()) error {
	i.pauses.Go(func() {
		select {
		case <-time.After(d):
			resumed()
		case <-i.ended:
		}
	})
	return stop(i.cmd.Process)
}

// run starts the instances with cfg, and returns when all have ended. The first one that fails, and
// was not killed by order, ends the others, as ctx does; what has not ended three seconds later is
// killed.
func (b *balancer) run(ctx context.Context, cfg any) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	call := func(f func() error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := f(); err != nil {
			cancel(err)
		}
	}
	var all sync.WaitGroup
	for number := range b.Instances {
		all.Go(func() {
			for killed := true; killed; {
				i := &instance{number: number + 1, ended: make(chan struct{})}
				err := b.start(ctx, i, cfg, call)
				call(func() error {
					if killed = i.killed && ctx.Err() == nil; killed {
						b.killed(i)
					} else if err != nil {
						return fmt.Errorf("instance-%d: %w", i.number, err)
					}
					return nil
				})
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
func (b *balancer) start(ctx context.Context, i *instance, cfg any, call func(func() error)) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	i.cmd = exec.CommandContext(ctx, program)
	i.cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(i.number))
	i.cmd.Stderr = os.Stderr
	if b.Strikes > 0 {
		prepare(i.cmd)
	}
	stdin, err := i.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := i.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	i.cmd.Cancel = func() error {
		_ = resume(i.cmd.Process)
		return stdin.Close()
	}
	i.cmd.WaitDelay = grace
	if err := i.cmd.Start(); err != nil {
		return err
	}
	i.stdin = stdin
	defer i.pauses.Wait()
	defer close(i.ended)
	i.tell(cfg)
	call(func() error { b.begun(i); return nil })
	for lines := json.NewDecoder(stdout); ; {
		var r report
		if err := lines.Decode(&r); err != nil {
			ended := i.cmd.Wait()
			if ended == nil && err != io.EOF {
				return fmt.Errorf("its lines make no sense: %w", err)
			}
			return ended
		}
		call(func() error { return b.heard(i, r) })
	}
}
