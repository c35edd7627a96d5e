package distlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

func TestRelease_worksWithACancelledContext(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		wantErr(t, lease.Release(leftCtx(t)), nil)
		s.wantFree(t)
	})
}

// A healthy service that takes a moment is waited for even by a caller who has left.
func TestRelease_cancelledContext_outcome(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.Inject(slow(in(10 * time.Millisecond)))
		wantErr(t, lease.Release(leftCtx(t)), nil)
	})
}

func TestRelease_saysIfTheLockWasLost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.steal(t)
		mustRelease(t, mustAcquire(t, s.locker(t)))
		s.Inject(slow(in(time.Second)))
		release := func() error { return lease.Release(t.Context()) }
		first, second := async(release), async(release)
		for _, err := range []error{<-first, <-second, release()} {
			wantErr(t, err, distlock.ErrLost)
		}
	})
}

// The lease was ended in time. The answer cannot say whether its lock was there until then.
func TestRelease_N_pausedBeforeItsRequest_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.OnRelease = func(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
			time.Sleep(ttl) // the process stops
			return s.Driver().Release(context.WithoutCancel(ctx), req)
		}
		wantErr(t, lease.Release(t.Context()), distlock.ErrOutcomeUnknown, distlock.ErrLost)
	})
}

// An answer after the release to an earlier request is neither a loss nor a reason to renew.
func TestRelease_duringAnExtensionIsNoLoss(t *testing.T) {
	type row struct {
		extend bool // or a renewal
		fault  func(<-chan struct{}) drivertest.Fault
	}
	before := func(answer <-chan struct{}) drivertest.Fault { return drivertest.Fault{HoldAfter: answer} }
	after := func(arrives <-chan struct{}) drivertest.Fault { return drivertest.Fault{HoldBefore: arrives} }
	each(t, map[string]row{
		"a renewal that arrives before the release": {false, before},
		"a renewal that arrives after it":           {false, after},
		"an Extend that arrives before the release": {true, before},
		"an Extend that arrives after it":           {true, after},
	}, func(t *testing.T, s *service, c row) {
		seen := &recorder{t: t}
		lease := mustAcquire(t, s.locker(t, seenBy(seen)))
		answer := make(chan struct{})
		s.Inject(on(drivertest.Extend, c.fault(answer)))
		if c.extend {
			async(func() error { return lease.Extend(t.Context(), time.Minute) })
		} else {
			time.Sleep(ttl/3 + time.Millisecond)
		}
		synctest.Wait()
		mustRelease(t, lease)
		close(answer)
		synctest.Wait()
		time.Sleep(ttl)
		if slices.Contains(seen.outcomes(), "distlock.lost lost") {
			t.Error("a loss was reported")
		}
		wantErr(t, lease.Err(), distlock.ErrNotHeld)
		s.wantCalls(t, drivertest.Extend, 1) // the one before the release
	})
}

func TestRelease_byTwoAtOnceIsOne(t *testing.T) {
	type row struct {
		fault, want error
		requests    int
	}
	each(t, map[string]row{
		"it works": {nil, nil, 1},
		"it fails": {errBroken, distlock.ErrOutcomeUnknown, 2}, // the second tries, too
	}, func(t *testing.T, s *service, c row) {
		lease := mustAcquire(t, s.locker(t))
		s.Inject(all(drivertest.Fault{HoldBefore: in(time.Second), Before: c.fault}))
		first := async(func() error { return lease.Release(t.Context()) })
		synctest.Wait()
		second := async(func() error { return lease.Release(t.Context()) })
		synctest.Wait()
		err := lease.Release(leftCtx(t))
		wantAll(t, err, context.Canceled, distlock.ErrOutcomeUnknown)
		if !strings.Contains(fmt.Sprint(err), "another call of Release is still under way") {
			t.Errorf("a third, cancelled: %v", err)
		}
		wantErr(t, <-first, c.want)
		wantErr(t, <-second, c.want)
		s.wantCalls(t, drivertest.Release, c.requests)
		s.Inject(nil)
	})
}

// A renewal after the release would keep a free lock alive until the release reaches the backend.
func TestRelease_L_nothingIsRenewedOnceItIsSent(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.Inject(on(drivertest.Release, drivertest.Fault{HoldBefore: in(ttl * 9 / 10)}))
		mustRelease(t, lease)
		s.wantCalls(t, drivertest.Extend, 0) // a renewal is due every third of the TTL
	})
}

// step begins a step of the lease, and returns where its error will come.
func step(t *testing.T, lease *distlock.Lease, fn func(context.Context) error) <-chan error {
	result := async(func() error { return lease.Guard(t.Context(), fn) })
	synctest.Wait()
	return result
}

// stuck is a step that goes on until its context ends.
func stuck(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }

func TestRelease_waitsForTheStepUnderWay(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		under := step(t, lease, func(ctx context.Context) error {
			time.Sleep(ttl - 10*time.Millisecond) // longer than a period: renewal goes on
			if !s.state(t).Held {
				t.Error("the lock was released under a step")
			}
			return ctx.Err()
		})
		late := step(t, lease, ranT(t)) // queued when the release begins
		mustRelease(t, lease)
		wantErr(t, <-under, nil)
		wantErr(t, <-late, distlock.ErrNotHeld)
		s.wantFree(t)
	})
}

func TestRelease_doesNotWaitForAStuckStepForEver(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		under, start := step(t, lease, stuck), time.Now()
		mustRelease(t, lease)
		wantTook(t, start, ttl)
		wantErr(t, <-under, distlock.ErrNotHeld)
	})
}

func TestRelease_cancelledContext_endsTheStep(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		under, start := step(t, lease, stuck), time.Now()
		wantErr(t, lease.Release(leftCtx(t)), nil)
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("Release took %s", took)
		}
		wantErr(t, <-under, distlock.ErrNotHeld)
	})
}

// A lease whose release waits for a step can still be lost, and both end in time.
func TestRelease_N_theDeadlineHoldsWhileItWaits(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.Inject(always(drivertest.Extend, errBroken))
		start := time.Now()
		under := step(t, lease, func(ctx context.Context) error {
			<-ctx.Done()
			if took := time.Since(start); took >= ttl || !s.state(t).Held {
				t.Errorf("the step was cancelled after %s", took)
			}
			time.Sleep(ttl) // takes no notice
			return nil
		})
		time.Sleep(ttl / 2)
		wantErr(t, lease.Release(t.Context()), distlock.ErrLost)
		if took := time.Since(start); took >= ttl {
			t.Errorf("Release took %s", took)
		}
		wantErr(t, <-under, distlock.ErrLost)
	})
}

// The step's own Release decides, and the other has its result.
func TestRelease_insideAStep_endsItAtOnce(t *testing.T) {
	each(t, map[string]func(*distlock.Locker, *distlock.Lease) error{
		"alone": nil,
		"while another Release waits": func(_ *distlock.Locker, le *distlock.Lease) error {
			return le.Release(context.Background())
		},
		"while Close waits": func(l *distlock.Locker, _ *distlock.Lease) error { return l.Close(context.Background()) },
	}, func(t *testing.T, s *service, other func(*distlock.Locker, *distlock.Lease) error) {
		l := s.locker(t)
		lease := mustAcquire(t, l)
		s.Inject(on(drivertest.Release, drivertest.Fault{HoldAfter: in(time.Second)}))
		start, ended := time.Now(), async(func() error { return nil })
		wantErr(t, lease.Guard(t.Context(), func(ctx context.Context) error {
			if other != nil {
				ended = async(func() error { return other(l, lease) })
				synctest.Wait()
			}
			err := lease.Release(ctx)
			wantCause(t, ctx, distlock.ErrNotHeld)
			wantErr(t, lease.Guard(ctx, ranT(t)), distlock.ErrNotHeld)
			return err
		}), nil)
		wantTook(t, start, time.Second)
		s.wantCalls(t, drivertest.Release, 1)
		wantErr(t, <-ended, nil)
		s.wantFree(t)
	})
}

// A step of several writes is not torn when the process shuts down.
func TestRelease_waits_stepGoesOn(t *testing.T) {
	each(t, map[string]func(*distlock.Locker, *distlock.Lease) error{
		"Release": func(_ *distlock.Locker, le *distlock.Lease) error { return le.Release(context.Background()) },
		"Close":   func(l *distlock.Locker, _ *distlock.Lease) error { return l.Close(context.Background()) },
	}, func(t *testing.T, s *service, release func(*distlock.Locker, *distlock.Lease) error) {
		l := s.locker(t)
		lease := mustAcquire(t, l)
		var released <-chan error
		wantErr(t, lease.Guard(lease.Context(), func(ctx context.Context) error {
			released = async(func() error { return release(l, lease) })
			time.Sleep(ttl - time.Millisecond)
			for call, err := range map[string]error{
				"Guard":      lease.Guard(ctx, nothing),
				"Do":         l.Do(context.WithoutCancel(ctx), key, nothing),
				"Err":        lease.Err(),
				"RaiseToken": fencing.RaiseToken(ctx, lease, lease.Fence()+10),
				"Extend":     lease.Extend(ctx, ttl),
				"ctx":        ctx.Err(),
			} {
				if err != nil {
					t.Errorf("%s of the step: %v", call, err)
				}
			}
			wantErr(t, lease.Guard(t.Context(), ranT(t)), distlock.ErrNotHeld, distlock.ErrLost)
			wantErr(t, l.Do(lease.Context(), key, ranT(t)), distlock.ErrNotHeld, distlock.ErrLost)
			return nil
		}), nil)
		wantErr(t, <-released, nil)
		s.wantFree(t)
	})
}
