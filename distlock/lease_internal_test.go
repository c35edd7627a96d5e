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
	each(t, map[string]func(*testing.T, *Lease) error{
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
	}, func(t *testing.T, guarded func(*testing.T, *Lease) error) {
		lease := take(t, open(t, new(Script), Options{}))
		suspendFor(t, 31*time.Second)
		wantErr(t, guarded(t, lease), ErrLost)
		wantLost(t, lease)
	})
}

// The grant was under way while the machine was suspended: the time left is unknown.
func TestAcquire_N_suspendBeforeTheAnswer_undone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Script{OnAcquire: func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
			suspendFor(t, 31*time.Second)
			return driver.AcquireReply{Outcome: driver.Granted, Fence: 1, FenceEnd: 1}, nil
		}}
		_, err := open(t, d, Options{}).Acquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		synctest.Wait()
		if got := d.Released(); len(got) != 1 || got[0].Tombstone == 0 {
			t.Errorf("the grant was not released, but %+v", got)
		}
	})
}

// Go's timers stand still while the machine is suspended.
func TestLease_N_suspend_endsWithinASecond(t *testing.T) {
	each(t, map[string]Options{"renewed": {}, "not renewed": unrenewed}, func(t *testing.T, opts Options) {
		l := open(t, new(Script), opts)
		give(t, take(t, l))
		time.Sleep(time.Minute) // without a lease
		lease := take(t, l)
		time.Sleep(time.Second)
		suspendFor(t, time.Hour)
		_ = l.workBegins() // for the race detector
		l.workEnds()
		time.Sleep(time.Second)
		synctest.Wait()
		wantLost(t, lease)
	})
}

func TestRenewals_N_suspend_setsTheAlarmAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(Script)
		l := open(t, d, Options{TTL: 30 * time.Second})
		lease := take(t, l)
		suspendFor(t, 5*time.Second)
		_ = l.workBegins() // for the race detector
		l.workEnds()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if n := d.Extended(); n != 1 {
			t.Errorf("%d renewals within 11 s, want 1", n)
		}
		give(t, lease)
	})
}

// With its timer stopped, a lease is as one whose timers are late: starved of CPU, or just resumed.
func TestLease_N_guardedCallsCompareTheClockThemselves(t *testing.T) {
	for name, guarded := range map[string]func(*testing.T, *Locker, *Lease) error{
		"Err":        func(_ *testing.T, _ *Locker, le *Lease) error { return le.Err() },
		"Extend":     func(t *testing.T, _ *Locker, le *Lease) error { return le.Extend(t.Context(), time.Second) },
		"Release":    func(t *testing.T, _ *Locker, le *Lease) error { return le.Release(t.Context()) },
		"Guard":      func(t *testing.T, _ *Locker, le *Lease) error { return le.Guard(t.Context(), ran(t)) },
		"Do":         func(t *testing.T, l *Locker, le *Lease) error { return l.Do(le.Context(), "k", ran(t)) },
		"RaiseToken": func(t *testing.T, _ *Locker, le *Lease) error { return le.raiseToken(t.Context(), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, new(Script), unrenewed)
			lease := take(t, l)
			lapse(lease)
			wantErr(t, guarded(t, l, lease), ErrLost)
			wantLost(t, lease)
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
	wantErr(t, lease.Guard(t.Context(), func(ctx context.Context) error {
		lapse(lease)
		wantErr(t, lease.Guard(ctx, ran(t)), ErrLost)
		return nil
	}), ErrLost)
}

// A timer can fire in the moment in which the deadline moves, or the lease ends.
func TestLease_timerFiresEarlyOrLate_noEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := granted(t)
		lease.grant.onTimer()
		wantErr(t, lease.Err(), nil)
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
		l := open(t, new(Script), unrenewed)
		lost := take(t, l)
		time.Sleep(lost.grant.ttl)
		give(t, take(t, l))
		if len(l.grants) > 0 {
			t.Error("leases are kept")
		}
	})
}

// The grant arrives in the moment in which the Locker is closed.
func TestClose_grantInTheSameMoment_isNotAdopted(t *testing.T) {
	l := open(t, new(Script), Options{})
	a := &acquisition{locker: l, caller: t.Context(), op: Operation{Key: "k"}, req: driver.AcquireRequest{TTL: l.opts.TTL}}
	wantErr(t, l.Close(t.Context()), nil)
	lease, err := a.granted(driver.AcquireReply{Outcome: driver.Granted, Fence: 1, FenceEnd: 1}, trust.Now(), l.opts.TTL)
	if lease != nil || err != ErrClosed || len(l.grants) > 0 {
		t.Errorf("%v, %v, want ErrClosed; %d grants", lease, err, len(l.grants))
	}
}

// The answer of the driver fails after Close, and before the contexts of waits have ended.
func TestAcquire_C_requestFailsAtClose_isClosed(t *testing.T) {
	var l *Locker
	l = open(t, &Script{OnAcquire: func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
		_ = l.Close(context.Background())
		return driver.AcquireReply{}, errors.New("the wire is broken")
	}}, unrenewed)
	a := &acquisition{locker: l, once: true, ctx: t.Context(), op: Operation{Key: "key", TTL: time.Minute}}
	wantErr(t, a.askUntilGranted(t.Context()).err, ErrClosed)
}

// A driver that does not know floors cannot help a store that has seen a higher token.
func TestRaiseToken_S2_driverIgnoresFloor_fails(t *testing.T) {
	lease := take(t, open(t, &Script{OnRaise: func(context.Context, driver.RaiseRequest) (driver.RaiseReply, error) {
		return driver.RaiseReply{Held: true, Fence: 1}, nil
	}}, unrenewed))
	wantErr(t, lease.raiseToken(t.Context(), lease.Fence()), ErrUnavailable)
}
