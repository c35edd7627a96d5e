package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/childproc"
)

// childEnv tells a process that it is an instance.
const childEnv = "BELUGALOCK_CHAOS_INSTANCE"

// child is one run of an instance.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer // to be read when it has ended

	open    map[int]*attempt // not ended
	target  *attempt         // whose strike is to come, or has
	stopped time.Time        // since when; zero: it runs
	killed  bool
	ended   bool // told to end
}

// said is what a child has reported; nil: it has ended, with err.
type said struct {
	by     *child
	report *report
	err    error
}

// startChild starts an instance that reports to in.
func startChild(tb testing.TB, c config, in chan<- said) *child {
	tb.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		tb.Fatal(err)
	}
	ch := &child{cmd: exec.Command(os.Args[0]), open: make(map[int]*attempt)}
	ch.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	ch.cmd.Stderr = &ch.stderr
	if ch.in, err = ch.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := ch.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	err = childproc.Start(ch.cmd, func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r report
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				continue // the last one of a child that was killed, or what the runtime prints when it ends
			}
			in <- said{by: ch, report: &r}
		}
		in <- said{by: ch, err: ch.cmd.Wait()}
	})
	if err != nil {
		tb.Fatal(err)
	}
	return ch
}

func (c *child) tell(t *task) {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("a task: %v", err))
	}
	_, _ = c.in.Write(append(text, '\n')) // fails if it was killed, of which another word comes
}

func (c *child) kill()           { _ = c.cmd.Process.Kill() }
func (c *child) stop()           { _ = c.cmd.Process.Signal(syscall.SIGSTOP) }
func (c *child) cont()           { _ = c.cmd.Process.Signal(syscall.SIGCONT) }
func (c *child) available() bool { return !c.killed && !c.ended && c.stopped.IsZero() }
