package calls_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/internal/calls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDriver = errors.New("the error of the driver")

const limit = time.Second

// outcome is the result of a call for its caller, and for late.
type outcome struct {
	value    int
	err      error
	panicked any
	took     time.Duration
	late     []error // of each call of late
	over     int
}

// made makes a call, and returns when it is over.
func made(ctx context.Context, limit time.Duration, call func(context.Context) (int, error)) *outcome {
	o := &outcome{}
	start := time.Now()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		defer func() { o.panicked = recover() }()
		late := func(_ int, err error) { o.late = append(o.late, err) }
		o.value, o.err = calls.Do(ctx, limit, call, late, func() { o.over++ })
	}()
	<-returned
	o.took = time.Since(start)
	time.Sleep(time.Hour) // the call ends
	synctest.Wait()
	return o
}

func TestDo_oneGetsTheResult(t *testing.T) {
	const leaves, short = 100 * time.Millisecond, 50 * time.Millisecond
	for name, c := range map[string]struct {
		limit time.Duration
		call  func(context.Context) (int, error)

		value    int
		err      error
		text     string
		took     time.Duration
		late     bool
		panicked bool
	}{
		"the answer comes": {limit: limit, call: after(0, 7, nil), value: 7},
		"an error comes":   {limit: limit, call: after(0, 0, errDriver), err: errDriver},
		"without a limit":  {call: after(0, 7, nil), value: 7},
		"the caller leaves": {
			limit: limit, call: after(2*leaves, 7, nil), err: calls.ErrLeft, took: leaves, late: true,
		},
		"the caller leaves, no limit": {
			call: after(2*leaves, 7, nil), err: calls.ErrLeft, took: leaves, late: true,
		},
		"the limit ends": {
			limit: short, call: untilEnd, text: "no answer within 50ms; check ", took: short,
		},
		"the driver ignores the limit": {
			limit: short, call: after(time.Minute, 7, nil), text: "no answer within 50ms; check ",
			took: short + 20*time.Millisecond, late: true,
		},
		"the client gives up": {
			limit: limit, call: after(0, 0, context.DeadlineExceeded),
			text: "no answer within the timeouts of the client; check ",
		},
		"a panic": {limit: limit, call: panics, late: true, panicked: true},
		"a goroutine that ends": {
			limit: limit, call: goexits, text: "ended its goroutine", late: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(leaves, cancel)
				o := made(ctx, c.limit, c.call)
				if o.value != c.value || o.took != c.took || errors.Is(o.err, context.DeadlineExceeded) {
					t.Errorf("the caller has %d, %v after %s", o.value, o.err, o.took)
				}
				switch {
				case c.panicked:
					if err, _ := o.panicked.(error); !errors.Is(err, errDriver) {
						t.Errorf("the caller has panic %v", o.panicked)
					}
				case o.panicked != nil:
					t.Errorf("the caller has panic %v", o.panicked)
				case c.text != "":
					if o.err == nil || !strings.Contains(o.err.Error(), c.text) {
						t.Errorf("the caller has %v, want %q", o.err, c.text)
					}
				case !errors.Is(o.err, c.err):
					t.Errorf("the caller has %v, want %v", o.err, c.err)
				}
				if late := len(o.late) == 1; late != c.late || len(o.late) > 1 {
					t.Errorf("late has %v", o.late)
				}
				if !c.panicked && calls.Unsettled(o.err) != c.late {
					t.Errorf("%v: unsettled %t", o.err, !c.late)
				}
				if o.over != 1 {
					t.Errorf("over was called %d times", o.over)
				}
			})
		})
	}
}

func after(d time.Duration, value int, err error) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		if d > 0 {
			time.Sleep(d)
		}
		return value, err
	}
}

func panics(context.Context) (int, error) { panic(errDriver) }

func goexits(context.Context) (int, error) {
	runtime.Goexit()
	return 7, nil
}

func untilEnd(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestDirect_oneGetsTheResult(t *testing.T) {
	const leaves, short = 100 * time.Millisecond, 50 * time.Millisecond
	for name, c := range map[string]struct {
		limit time.Duration
		call  func(context.Context) (int, error)

		value    int
		err      error
		text     string
		late     error
		panicked any
	}{
		"the answer comes":      {limit: limit, call: after(0, 7, nil), value: 7},
		"the answer is late":    {limit: limit, call: after(2*leaves, 7, nil), value: 7},
		"an error comes":        {limit: limit, call: after(short, 0, errDriver), err: errDriver},
		"the caller leaves":     {limit: limit, call: untilEnd, err: calls.ErrLeft, late: context.Canceled},
		"an error is late":      {limit: limit, call: after(2*leaves, 0, errDriver), err: calls.ErrLeft, late: errDriver},
		"the limit ends":        {limit: short, call: untilEnd, text: "no answer within 50ms; check "},
		"a panic":               {limit: limit, call: panics, text: "", late: calls.ErrLeft, panicked: errDriver},
		"a goroutine that ends": {limit: limit, call: goexits, late: calls.ErrLeft},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(leaves, cancel)
				var value int
				var err error
				var late []error
				var panicked any
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { panicked = recover() }()
					value, err = calls.Direct(ctx, c.limit, c.call, func(_ int, err error) { late = append(late, err) })
				}()
				<-ended
				if value != c.value || panicked != c.panicked {
					t.Errorf("the caller has %d and panic %v", value, panicked)
				}
				if c.text != "" {
					if err == nil || !strings.Contains(err.Error(), c.text) {
						t.Errorf("the caller has %v, want %q", err, c.text)
					}
				} else if !errors.Is(err, c.err) {
					t.Errorf("the caller has %v, want %v", err, c.err)
				}
				switch {
				case c.late == nil && len(late) == 0:
				case len(late) != 1 || c.late == nil:
					t.Errorf("late has %v", late)
				case c.late == calls.ErrLeft && !calls.Unsettled(late[0]), c.late != calls.ErrLeft && late[0] != c.late:
					t.Errorf("late has %v", late)
				}
			})
		})
	}
}

// The context of a call with a limit has the values of the caller's, and outlives it. A call without
// a limit has the context of the caller.
func TestDo_contextOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		time.AfterFunc(time.Millisecond, cancel)
		var at time.Duration
		var value any
		start := time.Now()
		note := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			at, value = time.Since(start), ctx.Value(key{})
			return 0, ctx.Err()
		}
		made(ctx, limit, note)
		if at != limit || value != "value" {
			t.Errorf("the call's context ended after %s and has %v", at, value)
		}
		start = time.Now()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		made(ctx, 0, note)
		if at != time.Millisecond {
			t.Errorf("without a limit, the call's context ended after %s", at)
		}
	})
}

// The answer and the caller's leaving meet: one of the caller and late has the value, whichever comes first.
func TestDo_answerMeetsLeaving(t *testing.T) {
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		answer, over := make(chan struct{}), make(chan struct{})
		late := 0
		go cancel()
		go close(answer)
		call := func(context.Context) (int, error) { <-answer; return 7, nil }
		value, err := calls.Do(ctx, limit, call, func(value int, _ error) { late = value }, func() { close(over) })
		<-over
		if err == nil && value+late != 7 || err != nil && (err != calls.ErrLeft || value != 0 || late != 7) {
			t.Fatalf("the caller has %d, %v, and late has %d", value, err, late)
		}
	}
}

// A panic when the caller has left is not swallowed.
func TestDo_panicWithoutCaller_endsProcess(t *testing.T) {
	if os.Getenv("PANIC_WITHOUT_CALLER") != "" {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		left := make(chan struct{})
		call := func(context.Context) (int, error) { <-left; panic("the driver's panic") }
		_, err := calls.Do(ctx, limit, call, func(int, error) {}, func() {})
		os.Stdout.WriteString("Do: " + err.Error() + "\n")
		close(left)
		time.Sleep(10 * time.Second)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDo_panicWithoutCaller_endsProcess$")
	cmd.Env = append(os.Environ(), "PANIC_WITHOUT_CALLER=1")
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err == nil || !strings.Contains(text, "Do: no answer yet") || !strings.Contains(text, "the driver's panic") {
		t.Errorf("the process ended with %v: %s", err, out)
	}
}

func TestOwnDeadline_text(t *testing.T) {
	detailed := errors.Join(errDriver, os.ErrDeadlineExceeded, context.DeadlineExceeded)
	for name, c := range map[string]struct {
		err  error
		took time.Duration
		want string
	}{
		"another error": {errDriver, limit, errDriver.Error()},
		"of the limit":  {context.DeadlineExceeded, limit, calls.NoAnswer(limit)},
		"of the client": {
			context.DeadlineExceeded, 0,
			"no answer within the timeouts of the client; check the lock service and the network to it",
		},
		"with other errors": {detailed, limit, calls.NoAnswer(limit)},
	} {
		err := calls.OwnDeadline(c.err, limit, c.took)
		if err.Error() != c.want || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, errDriver) != errors.Is(c.err, errDriver) {
			t.Errorf("%s: %v does not match what %v matches", name, err, c.err)
		}
	}
}
