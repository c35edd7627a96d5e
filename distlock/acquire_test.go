package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestAcquire_waitIsTheLimit(t *testing.T) {
	type row struct {
		wait option
		call distlock.CallOption
		want time.Duration
	}
	each(t, map[string]row{
		"default":       {withWait(0), distlock.WithWait(0), ttl + 5*time.Second},
		"Options.Wait":  {withWait(700 * time.Millisecond), distlock.WithWait(0), 700 * time.Millisecond},
		"WithWait":      {withWait(0), distlock.WithWait(12 * time.Second), 12 * time.Second},
		"negative Wait": {patient, distlock.WithWait(0), 10 * time.Minute}, // the ctx decides
	}, func(t *testing.T, s *service, c row) {
		mustAcquire(t, s.locker(t, withHolder("the first")))
		start := time.Now()
		_, err := s.locker(t, c.wait).Acquire(ctxFor(t, 10*time.Minute), key, c.call)
		if busy := wantBusy(t, err); busy.Holder != "the first" || busy.Self || busy.Held < c.want-time.Second {
			t.Errorf("BusyError %+v", busy)
		}
		if ended := c.want == 10*time.Minute; errors.Is(err, context.DeadlineExceeded) != ended {
			t.Errorf("Acquire: %v", err)
		}
		wantTook(t, start, c.want)
	})
}

func TestAcquire_C_brokenBackend_isUnavailable(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		s.Inject(cutOff(errBroken))
		err := l.Do(t.Context(), key, ranT(t))
		wantErr(t, err, distlock.ErrUnavailable, distlock.ErrNotAcquired)
		wantErr(t, err, errBroken)
	})
}

// Default options: the holder has crashed, and all waiters have the lock in turn.
func TestAcquire_L_defaultWaitOutlivesACrash(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		mustAcquire(t, s.twin().locker(t, withTTL(0), unrenewed))
		q := newQueue(t)
		for i := range 4 {
			q.join(s.locker(t, withTTL(0)), fmt.Sprint(i), 100*time.Millisecond)
		}
		q.wg.Wait()
		if n := len(q.granted()); n != 4 {
			t.Errorf("%d of 4 waiters had the lock; one failed with %v", n, q.err("0"))
		}
	})
}

func TestAcquire_C_firstAnswerWithin5sOrTTL(t *testing.T) {
	const long = 30 * time.Second
	type row struct {
		ttl, wait, want time.Duration
		turnedAway, try bool
	}
	each(t, map[string]row{
		"default":      {ttl: long, want: 5 * time.Second},
		"ctx alone":    {ttl: long, wait: -1, want: 5 * time.Second},
		"a short TTL":  {ttl: ttl, want: ttl},
		"a short wait": {ttl: long, wait: time.Second, want: time.Second},
		"turned away":  {ttl: long, wait: -1, turnedAway: true, want: 5 * time.Second},
		"TryAcquire":   {ttl: long, wait: -1, try: true, want: 5 * time.Second},
	}, func(t *testing.T, s *service, c row) {
		if c.turnedAway {
			s.Inject(always(drivertest.Acquire, errTurnedAway))
		} else {
			s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: in(time.Hour)}))
		}
		l := s.locker(t, withTTL(c.ttl), withWait(c.wait))
		start := time.Now()
		var err error
		if c.try {
			_, err = l.TryAcquire(context.Background(), key)
		} else {
			_, err = l.Acquire(context.Background(), key)
		}
		wantTook(t, start, c.want)
		wantErr(t, err, distlock.ErrUnavailable, context.DeadlineExceeded)
		if !c.turnedAway && !strings.Contains(fmt.Sprint(err), fmt.Sprintf("no answer within %s; check ", c.want)) {
			t.Errorf("the text names neither the limit nor what to do: %v", err)
		}
	})
}

// After an answer, a waiter waits on while the backend is silent for less than a TTL, or slow.
func TestAcquire_L_silenceAfterAnAnswerIsOutlived(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		holder := mustAcquire(t, s.twin().locker(t, withTTL(30*time.Second)))
		q := newQueue(t)
		q.join(s.locker(t, withTTL(30*time.Second), patient), "waiter", 0)
		s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: in(12 * time.Second)}))
		time.Sleep(13 * time.Second)
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldBefore: in(5 * time.Second)} })
		time.Sleep(time.Minute) // each answer takes 5 s
		mustRelease(t, holder)
		time.Sleep(30 * time.Second)
		s.Inject(nil)
		mustRelease(t, q.lease("waiter"))
	})
}

// A request, or a Listen, that hangs costs a waiter neither its place nor a handoff: the backend may be well.
func TestAcquire_L_oneCallHangs_keepsItsPlace(t *testing.T) {
	type row struct {
		op drivertest.Op
		n  int // the call that hangs
	}
	each(t, map[string]row{
		"the request for a place": {drivertest.Acquire, 1},
		"the next one":            {drivertest.Acquire, 2},
		"Listen":                  {drivertest.Listen, 0},
	}, func(t *testing.T, s *service, c row) {
		long, hangs := withTTL(30*time.Second), make(chan struct{})
		defer close(hangs)
		holder := mustAcquire(t, s.twin().locker(t, long))
		s.Inject(nth(c.op, c.n, drivertest.Fault{HoldBefore: hangs}))
		q := newQueue(t)
		q.join(s.locker(t, long, patient), "waiter", 0)
		for s.Calls(c.op) <= c.n {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(1100 * time.Millisecond)
		q.join(s.twin().locker(t, long, patient), "behind", 0)
		mustRelease(t, holder)
		time.Sleep(500 * time.Millisecond)
		q.want("waiter")
		mustRelease(t, q.lease("waiter"))
		mustRelease(t, q.lease("behind"))
	})
}

// A waiter has all of the time for its first answer when its turn to ask comes, however long it has
// waited, and although the contender before it had an answer.
func TestQueue_L_firstAnswerCountsFromThePromotion(t *testing.T) {
	each(t, map[string]bool{"answered": true, "silent": false}, func(t *testing.T, s *service, answers bool) {
		holder := mustAcquire(t, s.twin().locker(t, withTTL(30*time.Second), withHolder("the holder")))
		fails := make(chan struct{})
		s.Inject(nth(drivertest.Acquire, 0, drivertest.Fault{HoldBefore: fails, Before: errBroken}))
		l := s.locker(t, withTTL(30*time.Second), patient)
		q := newQueue(t)
		for _, name := range []string{"fails", "leaves", "next", "last"} {
			q.join(l, name, 0)
		}
		close(fails)
		time.Sleep(20 * time.Second)
		delay := in(4 * time.Second)
		if !answers {
			delay = in(time.Hour)
		}
		s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: delay}))
		q.leave("leaves")
		time.Sleep(4999 * time.Millisecond)
		wantErr(t, q.err("next"), nil) // before the limit
		time.Sleep(2 * time.Millisecond)
		err := q.err("next")
		if answers {
			wantErr(t, err, nil)
		} else {
			wantErr(t, err, distlock.ErrUnavailable, distlock.ErrNotAcquired)
			if !strings.Contains(fmt.Sprint(err), "the holder") {
				t.Errorf("without an answer: %v", err)
			}
		}
		wantErr(t, q.err("last"), nil) // "leaves" had an answer after the failure of "fails"
		s.Inject(nil)
		mustRelease(t, holder)
		time.Sleep(2 * time.Second)
		if answers {
			mustRelease(t, q.lease("next"))
		}
		q.leave("last")
	})
}

func TestAcquire_lostAnswer_leavesNothing(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		s.Inject(after(drivertest.Acquire, errBroken))
		wantErr(t, second(l.Acquire(t.Context(), key)), distlock.ErrUnavailable)
		synctest.Wait()
		s.wantFree(t)
		// A copy of the request that arrives now must not raise it again, however many have come
		// and gone since.
		s.Inject(nil)
		late := s.Granted()
		s.comeAndGo(t)
		s.wantNoGhost(t, late)
	})
}

// comeAndGo has three other holders, one after the other.
func (s *service) comeAndGo(t *testing.T) {
	t.Helper()
	others := s.twin().locker(t)
	for range 3 {
		mustRelease(t, mustAcquire(t, others))
	}
}

// wantNoGhost fails the test if a late copy of the request is granted the lock.
func (s *service) wantNoGhost(t *testing.T, late driver.AcquireRequest) {
	t.Helper()
	if reply, err := s.Driver().Acquire(t.Context(), late); err != nil || s.state(t).Held {
		t.Errorf("a late copy of the acquire was answered %+v, %v", reply, err)
	}
}

func TestAcquire_N_grantBelowAQuarterIsNotUsed(t *testing.T) {
	for _, took := range []time.Duration{ttl * 3 / 4, ttl - 100*time.Millisecond, ttl - 10*time.Millisecond} {
		inService(t, func(t *testing.T, s *service) {
			s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldAfter: in(took)}))
			wantErr(t, second(s.locker(t, patient).Acquire(t.Context(), key)), distlock.ErrUnavailable)
			synctest.Wait()
			s.wantFree(t)
		})
	}
}

func TestAcquire_underItsOwnLease_fails(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		lease := mustAcquire(t, l)
		_, err := l.Acquire(lease.Context(), key)
		if busy := wantBusy(t, err); !busy.Self ||
			!strings.Contains(err.Error(), "holds this lock already and would wait for itself: use the context that") {
			t.Errorf("Acquire: %v, want a BusyError with Self", err)
		}
		wantErr(t, second(l.Acquire(lease.Context(), "another key")), nil)
		_, err = s.locker(t, withWait(time.Second)).Acquire(lease.Context(), key)
		if busy := wantBusy(t, err); busy.Self {
			t.Errorf("another Locker's Acquire: %v, want an ordinary BusyError", err)
		}
		mustRelease(t, lease)
		wantErr(t, second(l.Acquire(context.WithoutCancel(lease.Context()), key)), distlock.ErrNotHeld)
	})
}

func TestAcquire_badKey_sendsNothing(t *testing.T) {
	s := newService()
	l := s.locker(t)
	for name, bad := range map[string]string{
		"empty": "", "too long": strings.Repeat("k", 1025), "NUL": "secret\x00", "CRLF": "secret\r\nSET",
		"not UTF-8": "secret\xff",
	} {
		for call, err := range map[string]error{
			"Acquire":    second(l.Acquire(t.Context(), bad)),
			"TryAcquire": second(l.TryAcquire(t.Context(), bad)),
			"Inspect":    second(l.Inspect(t.Context(), bad)),
			"Do":         l.Do(t.Context(), bad, ranT(t)),
		} {
			if !errors.Is(err, distlock.ErrInvalidKey) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: %v, want ErrInvalidKey without the key", name, call, err)
			}
		}
	}
	for _, op := range []drivertest.Op{drivertest.Acquire, drivertest.Inspect, drivertest.Release} {
		s.wantCalls(t, op, 0)
	}
	lease, err := l.Acquire(t.Context(), strings.Repeat("k", 1024))
	must(t, err)
	mustRelease(t, lease)
}

// The cause of a ctx that has ended is shown, and is not taken for the state of this Locker or of a lease.
func TestAcquire_closedLockerInTheCause(t *testing.T) {
	type row struct {
		cause error
		says  string
	}
	each(t, map[string]row{
		"work":   {errWork, errWork.Error()},
		"lease":  {distlock.ErrLost, "the lease of this context was lost"},
		"Locker": {fmt.Errorf("shutting down: %w", distlock.ErrClosed), "shutting down"},
	}, func(t *testing.T, s *service, c row) {
		mustAcquire(t, s.twin().locker(t))
		seen := &recorder{t: t}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(c.cause) })
		_, err := s.locker(t, seenBy(seen), patient).Acquire(ctx, key)
		wantErr(t, err, context.Canceled, distlock.ErrClosed, distlock.ErrLost)
		if !errors.Is(err, distlock.ErrNotAcquired) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("Acquire: %v", err)
		}
		seen.want("distlock.acquire cancelled")
	})
}
