package faultmatrix

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/childproc"
	"github.com/belugalock/belugalock/internal/leakcheck"
)

const childEnv = "BELUGALOCK_FAULTS_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(m)
}

// order is what a child is told when it starts.
type order struct {
	URL, Key string
	TTL      time.Duration

	// With these it works on sessions, see serveTurns, of the Redis that it makes clients of.
	Turns      []turnOrder
	Addrs      []string
	MasterName string
}

// serve is the child: it waits for the lock, says its token, and gives the lock back when it is told "release", which it
// answers with "released", or with the error.
func serve(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if o.Turns != nil {
		return serveTurns(o)
	}
	ctx := context.Background()
	l, err := lockurl.Open(ctx, o.URL, &distlock.Options{
		Namespace: namespace, TTL: o.TTL, Wait: time.Minute, Holder: "child", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	lease, err := l.Acquire(ctx, o.Key)
	if err != nil {
		return err
	}
	fmt.Println(lease.Fence())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := lease.Release(ctx); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("released")
	}
	return nil
}

// child is another process that holds a lock, or waits for it.
type child struct {
	tb    testing.TB
	cmd   *exec.Cmd
	in    io.Writer
	out   *bufio.Scanner
	fence int64
}

// startChild returns when the child holds its lock.
func startChild(tb testing.TB, o order) *child {
	tb.Helper()
	c := startWaiter(tb, o)
	c.holds()
	return c
}

// startWaiter returns at once.
func startWaiter(tb testing.TB, o order) *child {
	tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	c := &child{tb: tb, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	killed, ended := make(chan struct{}), make(chan struct{})
	err = childproc.Start(c.cmd, func() {
		defer close(ended)
		<-killed // Wait would take away what the child has said and nobody has read yet
		_ = c.cmd.Wait()
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.kill()
		close(killed)
		<-ended
	})
	c.in, c.out = in, bufio.NewScanner(out)
	return c
}

// holds waits until the child has its lock.
func (c *child) holds() {
	c.tb.Helper()
	if _, err := fmt.Sscan(c.answer(), &c.fence); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *child) release() {
	c.tb.Helper()
	c.tell("release")
	if answer := c.answer(); answer != "released" {
		c.tb.Errorf("the child's release: %s", answer)
	}
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

func (c *child) signal(s syscall.Signal) {
	c.tb.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.tb.Fatal(err)
	}
}

// tell sends a line; a child that is stopped reads it when it goes on.
func (c *child) tell(line string) {
	c.tb.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *child) answer() string {
	c.tb.Helper()
	if !c.out.Scan() {
		c.tb.Fatalf("the child has ended: %v", c.out.Err())
	}
	return c.out.Text()
}
