package childproc_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/childproc"
	"github.com/belugalock/belugalock/internal/leakcheck"
)

// role tells a process what it is: the parent of a sleeper, or the sleeper, who does nothing until it is killed.
const role = "BELUGALOCK_SPAWN_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "parent":
		sleeper := sleep()
		if err := childproc.Start(sleeper, func() { _ = sleeper.Wait() }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(sleeper.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or the test is
		os.Exit(1)
	case "sleeper":
		time.Sleep(time.Minute)
		os.Exit(1)
	}
	leakcheck.VerifyTestMain(m)
}

func sleep() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"=sleeper")
	return cmd
}

// A process ends with the one that has started it, also if that is killed, and even if it is stopped itself.
func TestStart_diesWithItsParent(t *testing.T) {
	for _, test := range []struct {
		name    string
		stopped bool
	}{{"it runs", false}, {"it is stopped", true}} {
		t.Run(test.name, func(t *testing.T) {
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), role+"=parent")
			in, err := parent.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			out, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			lines.Scan()
			pid, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("the parent says %q: %v", lines.Text(), err)
			}
			if test.stopped {
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			_ = parent.Process.Kill()
			_ = parent.Wait()
			eventually(t, "the process of a killed parent is gone", func() bool { return gone(pid) })
		})
	}
}

// A process does not end with threads: neither with that from which Start was called, nor with any other that ends later.
func TestStart_outlivesThreads(t *testing.T) {
	sleeper, threads, ended := sleep(), make(chan struct{}), make(chan struct{})
	err := onThreadThatEnds(func() error {
		return childproc.Start(sleeper, func() {
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

func TestStart_saysWhatFailed(t *testing.T) {
	if err := childproc.Start(exec.Command("/nonexistent"), func() { t.Error("run was called") }); err == nil {
		t.Error("no error for a program that is not there")
	}
}

// onThreadThatEnds calls f on a thread that has ended when it returns: a goroutine that returns while it is locked takes its thread along.
// The main thread is an exception, so that is occupied until another one has done it.
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
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return true
	}
	var pid int
	var name, state string
	_, _ = fmt.Sscan(string(text), &pid, &name, &state)
	return state == "Z"
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}
