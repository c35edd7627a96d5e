package distlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

func interruptible(o *distlock.Options) { o.Interruptible = true }

// interrupted asks the holder of the test's key.
func interrupted(t *testing.T, l *distlock.Locker) {
	t.Helper()
	held, err := l.Interrupt(t.Context(), key)
	if err != nil || !held {
		t.Errorf("Interrupt: %t, %v", held, err)
	}
}

// asked is a lease whose holder was asked.
func (s *service) asked(t *testing.T) *distlock.Lease {
	t.Helper()
	l := s.locker(t, interruptible)
	lease := mustAcquire(t, l)
	interrupted(t, l)
	<-lease.Context().Done()
	return lease
}

// The work ends at once, or at the next renewal. The lease lasts on for a TTL, whatever comes.
func TestInterrupt_L_endsTheWorkAndThenTheLease(t *testing.T) {
	each(t, map[string]struct {
		set  option
		most time.Duration
	}{
		"by a notice":    {interruptible, 0},
		"by the renewal": {unchanged, ttl / 3},
	}, func(t *testing.T, s *service, c struct {
		set  option
		most time.Duration
	}) {
		l := s.locker(t, c.set)
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, key)
			time.Sleep(ttl*2 + ttl/4) // no renewal is due
			start := time.Now()
			interrupted(t, s.twin().locker(t))
			<-ctx.Done()
			if took := time.Since(start); took > c.most+time.Millisecond {
				t.Errorf("the work ended after %s", took)
			}
			wantCause(t, ctx, distlock.ErrInterrupted)
			wantCause(t, lease.Context(), distlock.ErrInterrupted)
			wantErr(t, lease.Err(), nil)
			_ = l.Do(context.WithoutCancel(ctx), key, func(ctx context.Context) error {
				wantCause(t, ctx, distlock.ErrInterrupted)
				return nil
			})
			wantErr(t, lease.Extend(t.Context(), time.Hour), distlock.ErrInterrupted)
			time.Sleep(time.Millisecond)
			renewals := s.Calls(drivertest.Extend)
			time.Sleep(ttl * 9 / 10)
			wantErr(t, lease.Err(), nil)
			interrupted(t, s.twin().locker(t))
			time.Sleep(ttl / 10)
			s.wantCalls(t, drivertest.Extend, renewals)
			return errWork
		})
		wantAll(t, err, distlock.ErrLost, distlock.ErrInterrupted, errWork)
		s.wantFree(t)
	})
}

func unchanged(*distlock.Options) {}

// A notice ends the work by itself, also under a raised token. No renewal has to be answered.
func TestInterrupt_L_noticeAlone(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, interruptible)
		lease := mustAcquire(t, l)
		synctest.Wait()
		mustRaise(t, lease)
		s.Inject(on(drivertest.Extend, drivertest.Fault{HoldBefore: in(time.Minute)}))
		start := time.Now()
		interrupted(t, s.twin().locker(t))
		<-lease.Context().Done()
		wantTook(t, start, 0)
		wantCause(t, lease.Context(), distlock.ErrInterrupted)
		mustRelease(t, lease)
	})
}

// The renewal for the last step is tried again.
func TestInterrupt_L_lastRenewalFails_triedAgain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, interruptible))
		time.Sleep(ttl / 4) // no renewal is due
		s.Inject(on(drivertest.Extend, drivertest.Fault{Before: driver.ErrNotDone}))
		interrupted(t, s.twin().locker(t))
		<-lease.Context().Done()
		time.Sleep(time.Millisecond) // the renewal is sent
		s.Inject(nil)
		time.Sleep(ttl * 9 / 10)
		wantErr(t, lease.Err(), nil)
		mustRelease(t, lease)
	})
}

// Work that says that it is done is done.
func TestDo_interrupted_itsErrorSaysSo(t *testing.T) {
	each(t, map[string]struct {
		result func(context.Context) error
		want   string
	}{
		"done":      {nothing, "<nil>"},
		"the cause": {context.Cause, "distlock: interrupted"},
		"its ctx":   {context.Context.Err, "distlock: interrupted: context canceled"},
		"another":   {func(context.Context) error { return errWork }, "distlock: interrupted: the work failed"},
	}, func(t *testing.T, s *service, c struct {
		result func(context.Context) error
		want   string
	}) {
		l := s.locker(t, interruptible)
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			interrupted(t, l)
			<-ctx.Done()
			return l.Do(ctx, key, c.result)
		})
		if got := distlock.OutcomeOf(err); (err != nil) != (got == distlock.OutcomeInterrupted) || stringOf(err) != c.want {
			t.Errorf("%v, with the outcome %s; want %s", err, got, c.want)
		}
		s.wantFree(t)
	})
}

func stringOf(err error) string {
	if err == nil {
		return "<nil>"
	}
	return err.Error()
}

// An ask cuts no step off: not one that runs, nor one that waits, nor a later one.
func TestGuard_interrupted_stepsGoOn(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, interruptible)
		wantErr(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, key)
			steps, ran := make(chan error, 2), 0
			step := func(within context.Context) error {
				time.Sleep(50 * time.Millisecond)
				ran++
				wantErr(t, within.Err(), nil)
				return errors.Join(lease.Guard(within, func(ctx context.Context) error { return ctx.Err() }),
					l.Do(within, key, func(ctx context.Context) error { return ctx.Err() }))
			}
			for range 2 {
				go func() { steps <- lease.Guard(ctx, step) }()
			}
			synctest.Wait()
			interrupted(t, l)
			<-ctx.Done()
			for range 2 {
				wantErr(t, <-steps, nil)
			}
			wantErr(t, lease.Guard(ctx, step), nil)
			go func() { steps <- lease.Guard(ctx, step) }()
			synctest.Wait()
			wantErr(t, lease.Release(ctx), nil) // waits for the step
			wantErr(t, <-steps, nil)
			if ran != 4 {
				t.Errorf("%d steps ran", ran)
			}
			return nil
		}), nil)
	})
}

// A step of an asked lease ends with the lease.
func TestGuard_N_interrupted_stepEndsWithTheLease(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := s.asked(t)
		wantErr(t, lease.Guard(lease.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			wantCause(t, ctx, distlock.ErrLost)
			return nil
		}), distlock.ErrLost)
	})
}

// A release with the ended context of the work is answered.
func TestRelease_interrupted_oneRoundTrip(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := s.asked(t)
		s.Inject(on(drivertest.Release, drivertest.Fault{HoldAfter: in(time.Second)}))
		wantErr(t, lease.Release(lease.Context()), nil)
		s.wantFree(t)
	})
}

// The answer to an Extend tells of an ask, too.
func TestExtend_interrupted_endsTheWork(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, unrenewed)
		lease := mustAcquire(t, l)
		interrupted(t, l)
		wantErr(t, lease.Extend(t.Context(), ttl), nil)
		wantCause(t, lease.Context(), distlock.ErrInterrupted)
		mustRelease(t, lease)
		wantErr(t, lease.Extend(t.Context(), ttl), distlock.ErrNotHeld)
	})
}

// Interrupt means the present holder, also if the holder has changed since its look.
func TestInterrupt_presentHolder(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, theirs := s.locker(t, interruptible), s.twin().locker(t)
		held, err := theirs.Interrupt(t.Context(), key)
		if held || err != nil {
			t.Errorf("Interrupt of a free key: %t, %v", held, err)
		}
		first := mustAcquire(t, l)
		var second *distlock.Lease
		hasty := s.twin()
		hasty.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Ask && c.N == 1 {
				mustRelease(t, first)
				second = mustAcquire(t, l)
			}
			return drivertest.Fault{}
		})
		interrupted(t, hasty.locker(t))
		time.Sleep(time.Millisecond)
		wantCause(t, second.Context(), distlock.ErrInterrupted)
		mustRelease(t, second)
		third := mustAcquire(t, l)
		time.Sleep(ttl)
		wantErr(t, third.Context().Err(), nil) // the next holder was not asked
		mustRelease(t, third)
	})
}

func TestInterrupt_C_errors(t *testing.T) {
	ask := func(ctx context.Context, l *distlock.Locker) error { return second(l.Interrupt(ctx, key)) }
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		mustAcquire(t, l)
		wantErr(t, second(l.Interrupt(t.Context(), "")), distlock.ErrInvalidKey)
		wantOwn(t, ask(ctxFor(t, 0), l))
		for fault, want := range map[drivertest.Fault]error{
			{After: errBroken}:           distlock.ErrOutcomeUnknown,
			{Before: driver.ErrNotDone}:  distlock.ErrUnavailable,
			{Before: errForbidden}:       distlock.ErrRefused,
			{Before: driver.ErrFloor}:    distlock.ErrInvalidOption,
			{HoldAfter: in(time.Minute)}: distlock.ErrOutcomeUnknown,
		} {
			s.Inject(on(drivertest.Ask, fault))
			wantErr(t, ask(t.Context(), l), want)
		}
		s.Inject(on(drivertest.Ask, drivertest.Fault{Before: driver.ErrNotDone, HoldBefore: in(time.Minute)}))
		wantErr(t, ask(ctxFor(t, time.Second), l), context.DeadlineExceeded)
		s.Inject(nil)
		mustClose(t, l)
		wantErr(t, ask(t.Context(), l), distlock.ErrClosed)
	})
	inService(t, func(t *testing.T, s *service) {
		wantErr(t, ask(t.Context(), open(t, mute{s.Faults}, interruptible)), errors.ErrUnsupported, distlock.ErrOutcomeUnknown)
		wraps := open(t, drivertest.NewFaults(mute{s.Faults}), interruptible)
		wantErr(t, ask(t.Context(), wraps), errors.ErrUnsupported, distlock.ErrOutcomeUnknown)
		mustAcquire(t, wraps)
	})
}

// One line tells of a failed subscription. It is tried again, and then shows earlier asks.
func TestInterrupt_L_subscriptionIsTriedAgain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		logger, log := logged()
		l := s.locker(t, interruptible, withTTL(time.Hour), logTo(logger))
		s.Inject(from(drivertest.NotifyAsks, 0, 2, drivertest.Fault{Before: errForbidden}))
		start, lease := time.Now(), mustAcquire(t, l)
		interrupted(t, l)
		<-lease.Context().Done()
		if took := time.Since(start).Truncate(time.Millisecond); took != 8*time.Second {
			t.Errorf("the work ended after %s", took)
		}
		s.wantCalls(t, drivertest.NotifyAsks, 3)
		mustRelease(t, lease)
		mustRelease(t, mustAcquire(t, l))
		s.wantCalls(t, drivertest.NotifyAsks, 3)
		synctest.Wait()
		log.want(t, "level=", 1)
		log.want(t, "cannot notify holders", 1)
	})
}

// wantSince checks the keys of leases of a queue.
func (q *queue) wantSince(want map[string]int64) {
	q.t.Helper()
	for name, since := range want {
		if got := fencing.Since(q.lease(name)); got != since {
			q.t.Errorf("%s has waited since %d, want %d", name, got, since)
		}
	}
}

// The key of a lease is what its waiter has seen first, or else its first token. A raise keeps it.
func TestSince_S2_firstTokenSeen(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, q := s.locker(t), newQueue(t)
		first := mustAcquire(t, l)
		token := first.Fence()
		time.Sleep(time.Millisecond)
		q.join(l, "early", 0)
		time.Sleep(2 * time.Millisecond)
		mustRelease(t, first) // to early, which came after the request of the grant
		q.wantSince(map[string]int64{"early": 0})
		q.join(s.twin().locker(t), "elsewhere", 0)
		raised := mustRaise(t, q.lease("early"))
		q.wantSince(map[string]int64{"early": 0})
		if since := fencing.Since(first); since != token {
			t.Errorf("a lease that was granted at once with %d has waited since %d", token, since)
		}
		mustRaise(t, q.lease("early"))
		mustRelease(t, q.lease("early"))
		mustRaise(t, q.lease("elsewhere"))
		q.wantSince(map[string]int64{"elsewhere": token})
		if raised == token {
			t.Error("no raise")
		}
		mustRelease(t, q.lease("elsewhere"))
	})
}

// Waiters that came before the request of the grant have its tokens as keys, and may be Turns.
func TestSince_handedOff_waitedBeforeTheRequest(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		theirs, l, q := s.twin().locker(t), s.locker(t), newQueue(t)
		holder := mustAcquire(t, theirs)
		token := holder.Fence()
		q.join(l, "first", 0)
		turn := make(chan *distlock.Lease)
		go func() { turn <- mustAcquire(t, l, fencing.ForTurn()) }()
		synctest.Wait()
		time.Sleep(2 * ttl) // the contender asks again
		mustRelease(t, holder)
		first := q.lease("first")
		time.Sleep(2 * time.Millisecond)
		mustRelease(t, first)
		second := <-turn
		if second.Fence() != first.Fence()+1 || fencing.Since(second) != token {
			t.Errorf("the Turn has the token %d after %d, and has waited since %d", second.Fence(), first.Fence(), fencing.Since(second))
		}
		go func() { turn <- mustAcquire(t, l, fencing.ForTurn()) }()
		synctest.Wait()
		time.Sleep(2 * time.Millisecond)
		mustRelease(t, second)
		if third := <-turn; third.Fence() == second.Fence()+1 {
			t.Error("a late Turn was handed the lock within the process")
		} else {
			mustRelease(t, third)
		}
	})
}

// A waiter of an interruptible Locker sees the token of the holder before a later ask.
func TestAcquire_S2_interruptible_joiningAsks(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		theirs, l, q := s.twin().locker(t), s.locker(t, interruptible), newQueue(t)
		holder := mustAcquire(t, theirs)
		token := holder.Fence()
		q.join(l, "contender", 0)
		q.join(l, "second", 0)
		time.Sleep(time.Millisecond)
		held, err := fencing.Ask(t.Context(), s.twin().locker(t), key, driver.AskRequest{Fence: token})
		if err != nil || !held.Asked {
			t.Fatalf("Ask: %+v, %v", held, err)
		}
		q.join(l, "later", 0)
		mustRelease(t, holder)
		mustRelease(t, q.lease("contender"))
		q.wantSince(map[string]int64{"contender": token, "second": token})
		mustRelease(t, q.lease("second"))
		if since := fencing.Since(q.lease("later")); since != 0 && since < held.Fence {
			t.Errorf("a waiter from after the ask with %d has waited since %d", held.Fence, since)
		}
		mustRelease(t, q.lease("later"))
	})
}
