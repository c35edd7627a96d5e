package child_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{
		"parent": func(ctx context.Context, tester *child.Line) error {
			child, err := child.StartRole(ctx, "idle", nil, nil)
			if err != nil {
				return err
			}
			var pid int
			return errors.Join(child.Receive(&pid), tester.Send(pid), idle(ctx, tester))
		},
		"idle":    idle,
		"failing": func(context.Context, *child.Line) error { return errors.New("as this test wants it") },
		"stuck": func(_ context.Context, tester *child.Line) error {
			_ = tester.Send("stuck")
			select {}
		},
	})
	leakcheck.VerifyTestMain(m)
}

// idle sends its process ID.
func idle(ctx context.Context, tester *child.Line) error {
	_ = tester.Send(os.Getpid())
	<-ctx.Done()
	return nil
}

func start(t *testing.T, role string, config any) *child.Child {
	t.Helper()
	c, err := child.StartRole(t.Context(), role, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestChild_killed_lastValuesRemain(t *testing.T) {
	c := start(t, "stuck", nil)
	var answer string
	if err := c.Receive(&answer); err != nil {
		t.Fatal(err)
	}
	c.Kill()
	<-c.Done()
	if err := c.Receive(&answer); err != io.EOF || c.Err() == nil || c.Close() != nil {
		t.Errorf("received %q, %v; ended with %v, and Close with %v", answer, err, c.Err(), c.Close())
	}
}

// A child that does not end on request is killed. Its parent's ctx may be the request.
func TestChild_stuck_killed(t *testing.T) {
	t.Parallel()
	for _, byContext := range []bool{false, true} {
		t.Run(fmt.Sprint("by ctx: ", byContext), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			c, err := child.StartRole(ctx, "stuck", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer cancel()
			var stuck string
			if err := c.Receive(&stuck); err != nil {
				t.Error(err)
			}
			if byContext {
				cancel()
				<-c.Done()
			}
			if err := c.Close(); (err == nil) != byContext {
				t.Errorf("Close returns %v", err)
			}
		})
	}
}

func TestChild_failure_reported(t *testing.T) {
	for _, role := range []string{"failing", "unknown"} {
		c := start(t, role, nil)
		var never string
		if err := c.Receive(&never); err != io.EOF {
			t.Errorf("%s: received %q, %v", role, never, err)
		}
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), role) || !strings.Contains(c.Stderr(), role) {
			t.Errorf("%s: closed with %v; stderr has %q", role, err, c.Stderr())
		}
	}
}

// A process ends with the one that has started it, also if that is killed, and even if it is stopped itself.
func TestStart_diesWithItsParent(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprint("stopped: ", stopped), func(t *testing.T) {
			parent := start(t, "parent", nil)
			var pid int
			if err := parent.Receive(&pid); err != nil {
				t.Fatal(err)
			}
			if stopped {
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			parent.Kill()
			servers.Await(t, 10*time.Second, "the process of a killed parent is gone", func() bool { return gone(pid) })
		})
	}
}

// A process does not end with threads: neither with that from which Start was called, nor with any
// other that ends later.
func TestStart_outlivesThreads(t *testing.T) {
	sleeper, threads, ended := exec.Command("sleep", "60"), make(chan struct{}), make(chan struct{})
	err := onThreadThatEnds(func() error {
		return child.Start(sleeper, func() {
			defer close(ended)
			<-threads // which has no thread, as a goroutine that reads what the process says
			_ = sleeper.Wait()
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		_ = onThreadThatEnds(func() error { return nil })
	}
	close(threads)
	select {
	case <-ended:
		t.Error("the process has ended with a thread")
	case <-time.After(100 * time.Millisecond): // a signal comes at once
	}
	_ = sleeper.Process.Kill()
	<-ended
}

// onThreadThatEnds calls f on a thread that has ended when it returns: a goroutine that returns
// while it is locked takes its thread along. The main thread is an exception, so that is occupied
// until another one has done it.
func onThreadThatEnds(f func() error) (err error) {
	done, tid := make(chan struct{}), 0
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			err = onThreadThatEnds(f)
			return
		}
		tid, err = syscall.Gettid(), f()
	}()
	<-done
	for tid != 0 && !gone(tid) {
		time.Sleep(100 * time.Microsecond)
	}
	return err
}

// gone reports whether there is no such process or thread, or none that could do anything.
func gone(id int) bool {
	state := child.State(id)
	return state == 0 || state == 'Z'
}
