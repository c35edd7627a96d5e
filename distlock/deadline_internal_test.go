package distlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// With its timer stopped, a lease is as one whose timers are late: starved of CPU, or just resumed.
func TestLease_N_guardedCallsCompareTheClockThemselves(t *testing.T) {
	for name, guarded := range map[string]func(*Locker, *Lease) error{
		"Err":        func(_ *Locker, le *Lease) error { return le.Err() },
		"Extend":     func(_ *Locker, le *Lease) error { return le.Extend(t.Context(), time.Second) },
		"Release":    func(_ *Locker, le *Lease) error { return le.Release(t.Context()) },
		"Guard":      func(_ *Locker, le *Lease) error { return le.Guard(t.Context(), ran(t)) },
		"Do":         func(l *Locker, le *Lease) error { return l.Do(le.Context(), "k", ran(t)) },
		"RaiseToken": func(_ *Locker, le *Lease) error { return le.raiseToken(t.Context(), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, new(minter), unrenewed)
			lease := take(t, l)
			lapse(lease)
			if err := guarded(l, lease); !errors.Is(err, ErrLost) {
				t.Errorf("%v, want ErrLost", err)
			}
			if context.Cause(lease.Context()) != ErrLost {
				t.Errorf("cause %v", context.Cause(lease.Context()))
			}
		})
	}
}

// lapse lets the deadline pass without an effect of its timer.
func lapse(le *Lease) {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	le.grant.timer.Stop()
	le.grant.trust = trust.Trust{}
}

func TestGuard_N_aStepWithinAStepComparesTheClockToo(t *testing.T) {
	lease := granted(t)
	err := lease.Guard(t.Context(), func(ctx context.Context) error {
		lapse(lease)
		if err := lease.Guard(ctx, ran(t)); !errors.Is(err, ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
		return nil
	})
	if !errors.Is(err, ErrLost) {
		t.Errorf("the outer step: %v, want ErrLost", err)
	}
}

// A timer can fire in the moment in which the deadline moves, or the lease ends.
func TestLease_timerFiresEarlyOrLate_noEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := granted(t)
		lease.grant.onTimer()
		if err := lease.Err(); err != nil {
			t.Errorf("before the deadline: %v", err)
		}
		give(t, lease)
		lease.grant.onTimer()
		time.Sleep(2 * lease.grant.ttl)
		if err := lease.Err(); !errors.Is(err, ErrNotHeld) || lease.state != removed {
			t.Errorf("after the release: %v, state %d", err, lease.state)
		}
	})
}

func TestLocker_forgetsLeasesThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(minter), unrenewed)
		lost := take(t, l)
		time.Sleep(lost.grant.ttl)
		returned, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := returned.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(l.grants) > 0 {
			t.Error("leases are kept")
		}
	})
}

// The grant arrives in the moment in which the Locker is closed.
func TestClose_grantInTheSameMoment_isNotAdopted(t *testing.T) {
	l := open(t, new(minter), Options{})
	a := &acquisition{locker: l, caller: t.Context(), op: Operation{Key: "k"}, req: driver.AcquireRequest{TTL: l.opts.TTL}}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease, err := a.granted(driver.AcquireReply{Outcome: driver.Granted, Fence: 1, FenceEnd: 1}, trust.Now(), l.opts.TTL)
	if lease != nil || err != ErrClosed || len(l.grants) > 0 {
		t.Errorf("%v, %v, want ErrClosed; %d grants", lease, err, len(l.grants))
	}
}

// A driver that does not know floors cannot help a store that has seen a higher token.
func TestRaiseToken_S2_driverIgnoresFloor_fails(t *testing.T) {
	lease := take(t, open(t, &floorless{}, unrenewed))
	if err := lease.raiseToken(t.Context(), lease.Fence()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

type floorless struct{ minter }

func (*floorless) Raise(context.Context, driver.RaiseRequest) (driver.RaiseReply, error) {
	return driver.RaiseReply{Held: true, Fence: 1}, nil
}
