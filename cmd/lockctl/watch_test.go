package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/testservers"
)

// running is a command that follows.
type running struct {
	out  output
	stop context.CancelFunc
	code chan int
}

// output is a buffer that a test reads while a command writes.
type output struct {
	mu      sync.Mutex
	buffer  bytes.Buffer
	written func(text string) // nil, or called before each write
}

func (o *output) Write(p []byte) (int, error) {
	if o.written != nil {
		o.written(string(p))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

func startLockctl(t *testing.T, args ...string) *running { return startWith(t, nil, args...) }

// startWith calls written before each write of the command.
func startWith(t *testing.T, written func(text string), args ...string) *running {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{out: output{written: written}, stop: stop, code: make(chan int, 1)}
	t.Cleanup(stop)
	width := 0
	if args[0] == "watch" && slices.Contains(args, "--every") {
		width = 80
	}
	run := &tool{in: strings.NewReader(""), out: &r.out, errs: &r.out, size: func() (int, int) { return width, 24 }}
	go func() { r.code <- run.run(ctx, args) }()
	return r
}

func (r *running) await(t *testing.T, text string) {
	t.Helper()
	there := func() bool { return strings.Contains(r.out.String(), text) }
	// A command that has ended prints no more.
	testservers.Within(30*time.Second, func() bool { return there() || len(r.code) > 0 })
	if !there() {
		t.Fatalf("it printed %s, want %s", r.out.String(), text)
	}
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if code := <-r.code; code != 0 {
		t.Errorf("the exit code is %d: %s", code, r.out.String())
	}
}

func TestWatch_drawsUntilStopped(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		d := open(t, url)
		acquire(t, d, "apple", "host-1:10")
		r := startLockctl(t, "watch", "--every", "200ms", "--url", url)
		r.await(t, "host-1:10")
		acquire(t, d, "pear", "host-2:20")
		r.await(t, "host-2:20")
		r.await(t, "locks: 2, shown: 2")
		r.end(t)
		if text := r.out.String(); strings.Count(text, "\x1b[H") < 2 || !strings.Contains(text, "\x1b[K\n") || !strings.HasSuffix(text, "\x1b[J") {
			t.Errorf("it drew %q", text)
		}
		r = startLockctl(t, "watch", "-o", "json", "--url", url)
		r.await(t, `"key":"pear"`)
		r.end(t)
	})
}

func TestProgram_interruptEndsWatch(t *testing.T) {
	url := testservers.SharedRedis(t).URL()
	acquire(t, open(t, url), "apple", "host-1:10")
	var out output
	program := exec.Command(os.Args[0], "watch")
	program.Env = append(os.Environ(), asProgram+"=1", "LOCKCTL_URL="+url)
	program.Stdout, program.Stderr = &out, &out
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	if !testservers.Within(30*time.Second, func() bool { return strings.Contains(out.String(), "host-1:10") }) {
		t.Errorf("it printed %s", out.String())
	}
	if err := program.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("it ends with %v: %s", err, out.String())
	}
}

// A watch ends at the first reading without an answer, and goes on after a later one.
func TestWatch_goesOnAfterAnOutage(t *testing.T) {
	server := testservers.StartRedis(t)
	r := startLockctl(t, "watch", "-o", "json", "--url", server.URL()+"?max_retries=-1")
	r.await(t, `"locks":[]`)
	server.Kill()
	r.await(t, "lockctl: the service does not answer")
	server.Restart()
	acquire(t, open(t, server.URL()), "apple", "host-1:10")
	r.await(t, `"key":"apple"`)
	r.end(t)
}
