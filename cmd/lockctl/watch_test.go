package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

func startLockctl(t *testing.T, args ...string) *running {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{stop: stop, code: make(chan int, 1)}
	t.Cleanup(stop)
	width := 0
	if args[0] == "watch" && !slices.Contains(args, "-o") {
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
		r := startLockctl(t, "watch", "--url", url)
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
	r.await(t, "lockctl: no answer since ")
	server.Restart()
	acquire(t, open(t, server.URL()), "apple", "host-1:10")
	r.await(t, `"key":"apple"`)
	r.end(t)
}

// In a terminal, the rows of the last reading look old while the server hangs.
func TestWatch_silentServer_rowsLookOld(t *testing.T) {
	server := testservers.StartRedis(t)
	acquire(t, open(t, server.URL()), "apple", "host-1:10")
	r := startLockctl(t, "watch", "--url", server.URL()+"?max_retries=-1")
	r.await(t, "host-1:10")
	server.Pause()
	r.await(t, "no answer since ")
	r.await(t, "\x1b[2mapple")
	server.Resume()
	drawn := len(r.out.String())
	testservers.Await(t, 30*time.Second, "a picture without the silence", func() bool {
		pictures := strings.Split(r.out.String()[drawn:], "\x1b[H")
		last := pictures[len(pictures)-1]
		return strings.HasSuffix(last, "\x1b[J") && strings.Contains(last, "apple") && !strings.Contains(last, "no answer")
	})
	r.end(t)
}

func TestFollow_silence_isToldWithin1s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		run := &tool{out: io.Discard, errs: io.Discard, output: "table", size: func() (int, int) { return 80, 24 }}
		var answered time.Time
		hangs := false
		read := func() (picture, error) {
			if hangs {
				time.Sleep(answerLimit)
				return picture{}, errors.New("no answer")
			}
			hangs = true
			return picture{}, nil
		}
		var told []time.Duration
		err := run.follow(ctx, read, func(_ picture, silence string) error {
			if silence == "" {
				answered = time.Now()
				return nil
			}
			if !strings.HasPrefix(silence, "no answer since "+answered.Format(time.TimeOnly)) {
				t.Errorf("it says %q", silence)
			}
			if told = append(told, time.Since(answered)); time.Since(answered) > 2*answerLimit {
				cancel()
			}
			return nil
		})
		if err != nil || told[0] > time.Second {
			t.Errorf("told after %v, %v", told[0], err)
		}
		for i := range told[1:] {
			if gap := told[i+1] - told[i]; gap > time.Second {
				t.Errorf("nothing is drawn for %v", gap)
			}
		}
	})
}
