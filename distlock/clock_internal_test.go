package distlock

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// suspendFor lets the clocks look as if the machine had been suspended: it has passed on the boot clock alone.
func suspendFor(t *testing.T, d time.Duration) {
	t.Helper()
	real, before := suspended, slept.longest.Load()
	suspended = func() time.Duration { return time.Duration(before) + d }
	t.Cleanup(func() {
		suspended = real
		slept.longest.Store(before)
	})
}

func TestLease_N_isLostByASuspendLongerThanItsTTL(t *testing.T) {
	for name, guarded := range map[string]func(*testing.T, *Lease) error{
		"Err":     func(_ *testing.T, le *Lease) error { return le.Err() },
		"Guard":   func(t *testing.T, le *Lease) error { return le.Guard(t.Context(), ran(t)) },
		"Extend":  func(t *testing.T, le *Lease) error { return le.Extend(t.Context(), time.Second) },
		"Release": func(t *testing.T, le *Lease) error { return le.Release(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := New(granter{}, &Options{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				lease, err := l.Acquire(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				suspendFor(t, 31*time.Second)
				if err := guarded(t, lease); !errors.Is(err, ErrLost) {
					t.Errorf("%v, want ErrLost", err)
				}
				if context.Cause(lease.Context()) != ErrLost {
					t.Errorf("cause %v", context.Cause(lease.Context()))
				}
				_ = l.Close(t.Context())
			})
		})
	}
}

func TestClock_neverGoesBackAndIgnoresShortReadings(t *testing.T) {
	var s sleeping
	for _, c := range []struct{ seen, want time.Duration }{
		{-300, 0}, {5 * time.Millisecond, 5 * time.Millisecond}, {5*time.Millisecond + 900, 5 * time.Millisecond},
		{-time.Second, 5 * time.Millisecond}, {time.Hour, time.Hour}, {time.Minute, time.Hour},
	} {
		if got := s.observe(c.seen); got != c.want {
			t.Errorf("after %s: %s, want %s", c.seen, got, c.want)
		}
	}
}
