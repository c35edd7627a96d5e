package matrix

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

// stalls are the times in which this process was not let run. Limits of time allow for them.
var stalls *leakcheck.Watch

// unlessStalled runs a part of a row that needs a process that runs. If the part fails and the
// process was not let run for 250 ms, the failure shows nothing: the part runs again, on another
// key.
func unlessStalled(t *testing.T, key string, part func(t testing.TB, key string)) {
	t.Helper()
	const tries, much = 10, 250 * time.Millisecond
	for n := range tries {
		ctx, cancel := context.WithCancel(t.Context())
		try, start := &try{TB: t, ctx: ctx}, time.Now()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() {
				cancel()
				for _, clean := range slices.Backward(try.cleanups) {
					clean()
				}
			}()
			part(try, fmt.Sprint(key, "-", n))
		}()
		<-ended
		stalled := stalls.Stalled(start, time.Now())
		switch {
		case len(try.failures) == 0:
			return
		case stalled < much || n == tries-1:
			t.Errorf("in %s, of which the process was not let run for %s: %q", time.Since(start), stalled, try.failures)
			return
		}
		t.Logf("the process was not let run for %s, so this shows nothing: %q", stalled, try.failures)
	}
}

// try is one run of a part. It keeps the failures, and cleans up when it is over.
type try struct {
	testing.TB
	ctx      context.Context
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (t *try) Context() context.Context { return t.ctx }

func (t *try) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *try) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *try) Error(args ...any) { t.Errorf("%s", fmt.Sprint(args...)) }

func (t *try) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *try) Fatal(args ...any) { t.Fatalf("%s", fmt.Sprint(args...)) }
