package distlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// allSuspends is the sum of the suspends of all tests: the clock never goes back.
var allSuspends time.Duration

// suspendFor makes the clocks look as if the machine had been suspended, while no timer reads them.
func suspendFor(t *testing.T, d time.Duration) {
	t.Helper()
	synctest.Wait()
	suspended, ran := trust.Suspended, trust.WallRan
	allSuspends += d
	slept := allSuspends
	trust.Suspended = func() time.Duration { return suspended() + slept }
	trust.WallRan = func(t time.Time) time.Duration { return ran(t) + d }
	t.Cleanup(func() {
		synctest.Wait()
		trust.Suspended, trust.WallRan = suspended, ran
	})
}

func TestLease_N_suspendLongerThanTTL_isLost(t *testing.T) {
	for name, guarded := range map[string]func(*testing.T, *Lease) error{
		"Err":     func(_ *testing.T, le *Lease) error { return le.Err() },
		"Guard":   func(t *testing.T, le *Lease) error { return le.Guard(t.Context(), ran(t)) },
		"Extend":  func(t *testing.T, le *Lease) error { return le.Extend(t.Context(), time.Second) },
		"Release": func(t *testing.T, le *Lease) error { return le.Release(t.Context()) },
		"Release beside a step": func(t *testing.T, le *Lease) error {
			le.guard <- struct{}{}
			defer func(start time.Time) {
				if took := time.Since(start); took > 0 {
					t.Errorf("Release took %s", took)
				}
			}(time.Now())
			return le.Release(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, new(minter), Options{})
				lease := take(t, l)
				suspendFor(t, 31*time.Second)
				if err := guarded(t, lease); !errors.Is(err, ErrLost) {
					t.Errorf("%v, want ErrLost", err)
				}
				if context.Cause(lease.Context()) != ErrLost {
					t.Errorf("cause %v", context.Cause(lease.Context()))
				}
			})
		})
	}
}

// The grant was under way while the machine was suspended: the time left is unknown.
func TestAcquire_N_suspendBeforeTheAnswer_undone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &suspending{suspend: func() { suspendFor(t, 31*time.Second) }}
		l := open(t, d, Options{})
		if lease, err := l.Acquire(t.Context(), "k"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v, %v, want ErrUnavailable", lease, err)
		}
		synctest.Wait()
		if !d.tombstone.Load() {
			t.Error("the grant was not released")
		}
	})
}

type suspending struct {
	minter
	suspend   func()
	tombstone atomic.Bool
}

func (d *suspending) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	d.suspend()
	return d.minter.Acquire(ctx, req)
}

func (d *suspending) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	d.tombstone.Store(req.Tombstone > 0)
	return d.minter.Release(ctx, req)
}
