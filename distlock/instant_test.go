package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

func notNeeded(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the work was done under a lease")
		return nil
	}
}

func neverInstantly(t *testing.T) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) {
		t.Error("the work was done instantly")
		return true, nil
	}
}

// What is done instantly needs no lease and no call of the lock service.
func TestDoInstantly_asksNobodyWhereNobodyIsInTheWay(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		s.Inject(cutOff(errors.New("asked")))
		done := false
		err := l.DoInstantly(t.Context(), key, func(ctx context.Context) (bool, error) {
			if lease, ok := l.FromContext(ctx, key); ok {
				t.Errorf("a lease: %v", lease)
			}
			done = true
			return true, nil
		}, notNeeded(t))
		if err != nil || !done {
			t.Errorf("%t, %v", done, err)
		}
		failure := errors.New("instantly")
		if err := l.DoInstantly(t.Context(), key, func(context.Context) (bool, error) { return false, failure }, notNeeded(t)); err != failure {
			t.Errorf("the error of instant: %v", err)
		}
		if err := l.DoInstantly(t.Context(), "", neverInstantly(t), notNeeded(t)); !errors.Is(err, distlock.ErrInvalidKey) {
			t.Errorf("an empty key: %v", err)
		}
		s.Inject(nil)
		mustRelease(t, mustAcquire(t, l)) // the line is free again
		mustClose(t, l)
		if err := l.DoInstantly(t.Context(), key, neverInstantly(t), notNeeded(t)); !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("a closed Locker: %v", err)
		}
	})
}

// What is not done instantly is done under a lease, and joins the one that ctx carries.
func TestDoInstantly_goesOnAsDo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newService().locker(t, distlock.Options{})
		for _, wait := range []time.Duration{-1, 0, time.Second} {
			ran := false
			err := l.DoInstantly(distlock.WithWait(t.Context(), wait), key, func(context.Context) (bool, error) { return false, nil },
				func(ctx context.Context) error {
					lease, ok := l.FromContext(ctx, key)
					if ran = true; !ok || lease.Err() != nil {
						t.Errorf("with a wait of %s: no lease", wait)
					}
					return l.DoInstantly(ctx, key, neverInstantly(t), func(ctx context.Context) error {
						if joined, _ := l.FromContext(ctx, key); joined != lease {
							t.Error("another lease")
						}
						return nil
					})
				})
			if err != nil || !ran {
				t.Errorf("with a wait of %s: %t, %v", wait, ran, err)
			}
		}
	})
}

// Within the process it has its turn as everybody has: it does not overtake the holder and those who wait, and those who come while
// it is at work wait for it, also if it has to go on with a lease.
func TestDoInstantly_passesThroughTheLine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newService().locker(t, distlock.Options{Wait: -1})
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		work := func(what string) func(context.Context) error {
			return func(context.Context) error { note(what); time.Sleep(time.Second); return nil }
		}
		holder := mustAcquire(t, l)
		var all sync.WaitGroup
		start := func(fn func() error) {
			all.Go(func() {
				if err := fn(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		start(func() error { return l.Do(t.Context(), key, work("first")) })
		start(func() error { return l.DoInstantly(t.Context(), key, neverInstantly(t), work("second")) })
		note("holder")
		mustRelease(t, holder)
		all.Wait()

		start(func() error {
			return l.DoInstantly(t.Context(), key, func(context.Context) (bool, error) {
				note("instant")
				time.Sleep(time.Second)
				return false, nil
			}, work("third"))
		})
		start(func() error { return l.Do(t.Context(), key, work("fourth")) })
		start(func() error { return l.DoInstantly(t.Context(), key, neverInstantly(t), work("fifth")) })
		all.Wait()
		if want := []string{"holder", "first", "second", "instant", "third", "fourth", "fifth"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}

// The wait, ctx and Close end it, with what Acquire says then.
func TestDoInstantly_isGivenUp(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{Wait: time.Second})
		blocked := func(ctx context.Context) (bool, error) {
			if ctx.Err() != nil {
				t.Errorf("given up at once: %v", ctx.Err())
			}
			<-ctx.Done()
			return false, context.Cause(ctx)
		}
		start := time.Now()
		if err := l.DoInstantly(t.Context(), key, blocked, notNeeded(t)); err == nil || time.Since(start) != time.Second {
			t.Errorf("when the wait is over: %v after %s", err, time.Since(start))
		}
		// What the work has to say of its outcome stays, and that its context has ended does not: the caller's has not.
		ended := func(of error) func(ctx context.Context) (bool, error) {
			return func(ctx context.Context) (bool, error) {
				<-ctx.Done()
				return false, fmt.Errorf("%w: %w", of, ctx.Err())
			}
		}
		for _, of := range []error{distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown} {
			err := l.DoInstantly(t.Context(), key, ended(of), notNeeded(t))
			for _, other := range []error{distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown, context.Canceled, context.DeadlineExceeded} {
				if errors.Is(err, other) != (other == of) {
					t.Errorf("when the wait is over, with %v: %v", of, err)
				}
			}
		}
		mine := errors.New("mine")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(mine) })
		if err := l.DoInstantly(ctx, key, blocked, notNeeded(t)); !errors.Is(err, mine) {
			t.Errorf("cancelled: %v", err)
		}
		if err := l.DoInstantly(ctx, key, neverInstantly(t), notNeeded(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		time.AfterFunc(time.Millisecond, func() { mustClose(t, l) })
		if err := l.DoInstantly(t.Context(), key, ended(distlock.ErrOutcomeUnknown), notNeeded(t)); !errors.Is(err, distlock.ErrClosed) ||
			!errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, context.Canceled) {
			t.Errorf("closed: %v", err)
		}
	})
}

// A context that is kept does not outlive the call.
func TestDoInstantly_itsContextEndsWithTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newService().locker(t, distlock.Options{})
		for _, look := range []bool{true, false} {
			var kept context.Context
			err := l.DoInstantly(t.Context(), key, func(ctx context.Context) (bool, error) {
				if kept = ctx; look {
					_ = ctx.Done()
				}
				return true, nil
			}, notNeeded(t))
			if err != nil {
				t.Error(err)
			}
			start := time.Now()
			<-kept.Done()
			if took := time.Since(start); kept.Err() == nil || took > 0 {
				t.Errorf("it goes on for %s: %v", took, kept.Err())
			}
		}
	})
}

// Work that panics leaves the line to the others.
func TestDoInstantly_panics(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newService().locker(t, distlock.Options{Wait: time.Second})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not get through")
				}
			}()
			_ = l.DoInstantly(t.Context(), key, func(context.Context) (bool, error) { panic("instant") }, notNeeded(t))
		}()
		mustRelease(t, mustAcquire(t, l))
	})
}

// What another process holds is waited for.
func TestDoInstantly_waitsForAnotherProcess(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		other, l := s.locker(t, distlock.Options{}), s.twin().locker(t, distlock.Options{Wait: -1})
		holder := mustAcquire(t, other)
		time.AfterFunc(2*time.Second, func() { mustRelease(t, holder) })
		start, ran := time.Now(), false
		err := l.DoInstantly(t.Context(), key, func(context.Context) (bool, error) { return false, nil },
			func(context.Context) error { ran = true; return nil })
		if took := time.Since(start); err != nil || !ran || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("%t, %v after %s", ran, err, took)
		}
	})
}

// Where nobody waits, a lock that is busy is an error at once, and leaves the line to others.
func TestDoInstantly_withoutWaiting(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		other, l := s.locker(t, distlock.Options{}), s.twin().locker(t, distlock.Options{Wait: -1})
		holder := mustAcquire(t, other)
		err := l.DoInstantly(distlock.WithWait(t.Context(), 0), key, func(context.Context) (bool, error) { return false, nil }, notNeeded(t))
		if !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("busy: %v", err)
		}
		time.AfterFunc(time.Second, func() { mustRelease(t, holder) })
		mustRelease(t, mustAcquire(t, l))
	})
}
