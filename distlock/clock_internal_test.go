package distlock

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
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

func TestWallRanAhead_isNearNothingOnAMachineThatRuns(t *testing.T) {
	if ahead := wallRanAhead(); ahead.Abs() > time.Second {
		t.Errorf("the wall clock is %s ahead of the monotonic one", ahead)
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

// Where the time spent suspended cannot be read, the wall clock is a reason to ask, not to believe.
func TestLease_N_isAskedForWhenTheWallClockRanAhead(t *testing.T) {
	for name, c := range map[string]struct {
		ahead time.Duration
		held  bool // by the service
		asks  int
		want  error
	}{
		"a suspend that the lock survived": {10 * time.Minute, true, 1, nil},
		"a suspend that it did not":        {10 * time.Minute, false, 1, ErrLost},
		"a small correction":               {100 * time.Millisecond, false, 0, nil},
		"half the margin and more":         {126 * time.Millisecond, false, 1, ErrLost},
		"a step back":                      {-time.Hour, false, 0, nil},
	} {
		for call, guarded := range map[string]func(*Locker, *Lease) error{
			"Check": func(_ *Locker, le *Lease) error { return le.Check(context.Background()) },
			"Guard": func(_ *Locker, le *Lease) error {
				return le.Guard(context.Background(), func(context.Context) error { return nil })
			},
			"Do": func(l *Locker, le *Lease) error {
				return l.Do(le.Context(), "k", func(context.Context) error { return nil })
			},
			"Extend": func(_ *Locker, le *Lease) error { return le.Extend(context.Background(), 30*time.Second) },
		} {
			t.Run(name+"/"+call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := &asked{held: c.held || c.asks == 0}
					l, err := New(d, &Options{RenewEvery: -1, Logger: slog.New(slog.DiscardHandler)})
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close(t.Context())
					lease, err := l.Acquire(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					real := wallAhead
					wallAhead = func() time.Duration { return c.ahead }
					defer func() { wallAhead = real }()
					if err := lease.Err(); (err != nil) != (c.asks > 0) || err != nil && !errors.Is(err, ErrUnavailable) {
						t.Errorf("Err: %v", err)
					}
					for range 2 {
						if err := guarded(l, lease); !errors.Is(err, c.want) {
							t.Errorf("%v, want %v", err, c.want)
						}
					}
					asks := c.asks
					if call == "Extend" && c.want == nil {
						asks = 2 // by itself
					}
					if d.extends != asks {
						t.Errorf("the service was asked %d times, want %d", d.extends, asks)
					}
					if c.want == nil && c.asks > 0 && call != "Extend" {
						// What was trusted before counted on a clock that had stood still.
						if left := until(lease.deadline); left < 29*time.Second || left > 30*time.Second {
							t.Errorf("trusted for another %s", left)
						}
					}
				})
			})
		}
	}
}

// asked is a service that counts how often it is asked for a lease.
type asked struct {
	granter
	held    bool
	extends int
}

func (d *asked) Extend(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	d.extends++
	return []driver.ExtendReply{{Held: d.held}}
}
