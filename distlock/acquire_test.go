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
	"github.com/belugalock/belugalock/distlock/drivertest"
)

var errBroken = errors.New("the wire is broken")

func TestAcquire_waitIsTheLimit(t *testing.T) {
	for _, test := range []struct {
		name string
		opts distlock.Options
		call []distlock.CallOption
		want time.Duration
	}{
		{"default", distlock.Options{}, nil, ttl + 5*time.Second},
		{"Options.Wait", distlock.Options{Wait: 700 * time.Millisecond}, nil, 700 * time.Millisecond},
		{"WithWait", distlock.Options{}, []distlock.CallOption{distlock.WithWait(12 * time.Second)}, 12 * time.Second},
		{"WithWait zero", distlock.Options{Wait: time.Minute}, []distlock.CallOption{distlock.WithWait(0)}, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				mustAcquire(t, s.locker(t, distlock.Options{Holder: "the first"}))
				l := s.locker(t, test.opts)
				start := time.Now()
				_, err := l.Acquire(t.Context(), key, test.call...)
				var busy *distlock.BusyError
				if !errors.As(err, &busy) || !errors.Is(err, distlock.ErrNotAcquired) || errors.Is(err, distlock.ErrUnavailable) {
					t.Fatalf("Acquire: %v, want a BusyError", err)
				}
				if busy.Holder != "the first" || busy.Self || strings.Contains(err.Error(), "%!") {
					t.Errorf("BusyError %+v", busy)
				}
				if waited := time.Since(start); waited != test.want {
					t.Errorf("waited %s, want %s", waited, test.want)
				}
			})
		})
	}
}

func TestAcquire_negativeWait_ctxDecides(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		mustAcquire(t, s.locker(t, distlock.Options{}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err := s.locker(t, distlock.Options{Wait: -1}).Acquire(ctx, key)
		var busy *distlock.BusyError
		if !errors.As(err, &busy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Acquire: %v, want a BusyError joined to DeadlineExceeded", err)
		}
		if busy.Held < 10*time.Minute-time.Second {
			t.Errorf("held for %s", busy.Held)
		}
	})
}

func TestAcquire_C_brokenBackend_isUnavailable(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		s.Inject(cutOff(errBroken))
		ran := false
		err := l.Do(t.Context(), key, func(context.Context) error { ran = true; return nil })
		if !errors.Is(err, distlock.ErrUnavailable) || !errors.Is(err, errBroken) || errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("Do: %v", err)
		}
		if ran {
			t.Error("the work ran without the lock")
		}
	})
}

// Default options: the holder has crashed, and all waiters have the lock in turn.
func TestAcquire_L_defaultWaitOutlivesACrash(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		crashed := open(t, s.twin().Faults, unrenewed)
		mustAcquire(t, crashed)
		q := newQueue(t)
		for i := range 4 {
			q.join(open(t, s.Faults, distlock.Options{}), fmt.Sprint(i), 100*time.Millisecond)
		}
		q.wg.Wait()
		if n := len(q.granted()); n != 4 {
			t.Errorf("%d of 4 waiters had the lock; one failed with %v", n, q.err("0"))
		}
	})
}

func TestAcquire_C_firstAnswerWithin5sOrTTL(t *testing.T) {
	silent := drivertest.Fault{HoldBefore: make(chan struct{})} // for an hour
	acquire := func(l *distlock.Locker) error { return second(l.Acquire(context.Background(), key)) }
	for name, c := range map[string]struct {
		ttl, wait, want time.Duration
		fault           drivertest.Fault
		call            func(*distlock.Locker) error
	}{
		"default":      {ttl: 30 * time.Second, fault: silent, call: acquire, want: 5 * time.Second},
		"ctx alone":    {ttl: 30 * time.Second, wait: -1, fault: silent, call: acquire, want: 5 * time.Second},
		"a short TTL":  {ttl: ttl, fault: silent, call: acquire, want: ttl},
		"a short wait": {ttl: 30 * time.Second, wait: time.Second, fault: silent, call: acquire, want: time.Second},
		"turned away": {ttl: 30 * time.Second, wait: -1, fault: drivertest.Fault{Before: errTurnedAway},
			call: acquire, want: 5 * time.Second},
		"TryAcquire": {ttl: 30 * time.Second, wait: -1, fault: silent, want: 5 * time.Second,
			call: func(l *distlock.Locker) error { return second(l.TryAcquire(context.Background(), key)) }},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				if c.fault.HoldBefore != nil {
					c.fault.HoldBefore = in(time.Hour)
				}
				s.Inject(on(drivertest.Acquire, c.fault))
				l := s.locker(t, distlock.Options{TTL: c.ttl, Wait: c.wait})
				start := time.Now()
				err := c.call(l)
				took := time.Since(start)
				if !errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || took != c.want {
					t.Errorf("%v after %s, want ErrUnavailable after %s", err, took, c.want)
				}
				if c.fault.Before == nil && !strings.Contains(fmt.Sprint(err), fmt.Sprintf("no answer within %s; check ", c.want)) {
					t.Errorf("the text names neither the limit nor what to do: %v", err)
				}
			})
		})
	}
}

// After an answer, a waiter keeps its place while the backend is silent for less than a TTL.
func TestAcquire_L_silenceAfterAnAnswerIsOutlived(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		holder := mustAcquire(t, s.twin().locker(t, distlock.Options{TTL: 30 * time.Second}))
		q := newQueue(t)
		q.join(s.locker(t, distlock.Options{TTL: 30 * time.Second}), "waiter", 0)
		s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: in(12 * time.Second)}))
		time.Sleep(13 * time.Second)
		mustRelease(t, holder)
		time.Sleep(time.Second)
		mustRelease(t, q.lease("waiter"))
	})
}

// A waiter has all of the time for its first answer when its turn to ask comes, however long it has
// waited, and although the contender before it had an answer.
func TestQueue_L_firstAnswerCountsFromThePromotion(t *testing.T) {
	for name, answers := range map[string]bool{"answered": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				holder := mustAcquire(t, s.twin().locker(t, distlock.Options{TTL: 30 * time.Second, Holder: "the holder"}))
				fails := make(chan struct{})
				s.Inject(nth(drivertest.Acquire, 0, drivertest.Fault{HoldBefore: fails, Before: errBroken}))
				l := s.locker(t, distlock.Options{TTL: 30 * time.Second, Wait: -1})
				q := newQueue(t)
				q.join(l, "fails", 0)
				q.join(l, "leaves", 0)
				q.join(l, "next", 0)
				q.join(l, "last", 0)
				close(fails)
				time.Sleep(20 * time.Second)
				delay := in(4 * time.Second)
				if !answers {
					delay = in(time.Hour)
				}
				s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: delay}))
				q.leave("leaves")
				time.Sleep(4999 * time.Millisecond)
				if err := q.err("next"); err != nil {
					t.Errorf("before the limit: %v", err)
				}
				time.Sleep(2 * time.Millisecond)
				switch err := q.err("next"); {
				case answers && err != nil:
					t.Errorf("after an answer in time: %v", err)
				case !answers && (!errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrNotAcquired) ||
					!strings.Contains(err.Error(), "the holder")):
					t.Errorf("without an answer: %v", err)
				}
				if err := q.err("last"); err != nil { // "leaves" had an answer after the failure of "fails"
					t.Errorf("the last waiter shares a single failure: %v", err)
				}
				s.Inject(nil)
				mustRelease(t, holder)
				time.Sleep(2 * time.Second)
				if answers {
					mustRelease(t, q.lease("next"))
				}
				q.leave("last")
			})
		})
	}
}

func TestAcquire_lostAnswer_leavesNothing(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		s.Inject(after(drivertest.Acquire, errBroken))
		if _, err := l.Acquire(t.Context(), key); !errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Acquire: %v", err)
		}
		synctest.Wait()
		if s.state(t).Held {
			t.Error("a grant whose answer was lost stands")
		}
		// A copy of the request that arrives now must not raise it again, however many have come
		// and gone since.
		s.Inject(nil)
		late := s.granted()
		for range 3 {
			mustRelease(t, mustAcquire(t, l))
		}
		if reply, err := s.spy.Driver.Acquire(t.Context(), late); err != nil || s.state(t).Held {
			t.Errorf("a late copy of the acquire was answered %+v, %v", reply, err)
		}
	})
}

func TestAcquire_N_grantBelowAQuarterIsNotUsed(t *testing.T) {
	for _, took := range []time.Duration{ttl * 3 / 4, ttl - 100*time.Millisecond, ttl - 10*time.Millisecond} {
		inService(t, func(t *testing.T, s *service) {
			l := s.locker(t, distlock.Options{Wait: -1})
			s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldAfter: in(took)}))
			if lease, err := l.Acquire(t.Context(), key); !errors.Is(err, distlock.ErrUnavailable) {
				t.Errorf("a grant after %s: %v, %v", took, lease, err)
			}
			synctest.Wait()
			s.wantFree(t)
		})
	}
}

func TestAcquire_underItsOwnLease_fails(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		_, err := l.Acquire(lease.Context(), key)
		var busy *distlock.BusyError
		if !errors.As(err, &busy) || !busy.Self || !strings.Contains(err.Error(),
			"holds this lock already and would wait for itself: use the context that") {
			t.Fatalf("Acquire: %v, want a BusyError with Self", err)
		}
		if _, err := l.Acquire(lease.Context(), "another key"); err != nil {
			t.Errorf("another key under the lease: %v", err)
		}
		other := s.locker(t, distlock.Options{Wait: time.Second})
		if _, err := other.Acquire(lease.Context(), key); !errors.As(err, &busy) || busy.Self {
			t.Errorf("another Locker's Acquire: %v, want an ordinary BusyError", err)
		}
		mustRelease(t, lease)
		if _, err := l.Acquire(context.WithoutCancel(lease.Context()), key); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("Acquire under a released lease: %v, want ErrNotHeld", err)
		}
	})
}

func TestAcquire_badKey_sendsNothing(t *testing.T) {
	s := newService()
	l := s.locker(t, distlock.Options{})
	for name, bad := range map[string]string{
		"empty":     "",
		"too long":  strings.Repeat("k", 1025),
		"NUL":       "secret\x00",
		"CRLF":      "secret\r\nSET",
		"not UTF-8": "secret\xff",
	} {
		for call, err := range map[string]error{
			"Acquire":    second(l.Acquire(t.Context(), bad)),
			"TryAcquire": second(l.TryAcquire(t.Context(), bad)),
			"Inspect":    second(l.Inspect(t.Context(), bad)),
			"Do":         l.Do(t.Context(), bad, func(context.Context) error { t.Error("ran"); return nil }),
		} {
			if !errors.Is(err, distlock.ErrInvalidKey) {
				t.Errorf("%s, %s: %v, want ErrInvalidKey", name, call, err)
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: the text shows the key: %v", name, call, err)
			}
		}
	}
	for _, op := range []drivertest.Op{drivertest.Acquire, drivertest.Inspect, drivertest.Release} {
		if n := s.Calls(op); n != 0 {
			t.Errorf("%d calls of %s", n, op)
		}
	}
	lease, err := l.Acquire(t.Context(), strings.Repeat("k", 1024))
	if err != nil {
		t.Errorf("a key of 1024 bytes: %v", err)
	}
	_ = lease.Release(t.Context())
}

func second[T any](_ T, err error) error { return err }

func TestAcquire_endedContext_sendsNothing(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			if _, err := l.TryAcquire(ctx, key); !errors.Is(err, context.Canceled) {
				t.Errorf("TryAcquire: %v", err)
			}
		}
		synctest.Wait()
		if n := s.Calls(drivertest.Acquire); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestAcquire_cause_keepsContextError(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		mustAcquire(t, s.locker(t, distlock.Options{}))
		seen := &recorder{t: t}
		l := s.locker(t, distlock.Options{Observer: seen, Wait: -1})
		for cause, says := range map[error]string{errWork: errWork.Error(),
			distlock.ErrLost: "the lease of this context was lost"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err := l.Acquire(ctx, key)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), says) || errors.Is(err, distlock.ErrLost) {
				t.Errorf("Acquire: %v", err)
			}
			if got := seen.outcomes(); len(got) != 1 || got[0] != "distlock.acquire cancelled" {
				t.Errorf("outcomes %q", got)
			}
		}
	})
}
