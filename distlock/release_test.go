package distlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestRelease_worksWithACancelledContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		if s.state(t).Held {
			t.Error("the lock stands")
		}
	})
}

func TestRelease_returnsSoonWhenItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		answer := make(chan struct{})
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldBefore: answer} })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		err := lease.Release(ctx)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Release: %v", err)
		}
		if late := time.Since(start) - time.Second; late > 50*time.Millisecond {
			t.Errorf("returned %s after the cancellation", late)
		}
		close(answer)
		synctest.Wait()
		if s.state(t).Held {
			t.Error("the release did not go on in the background")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release again: %v", err)
		}
	})
}

func TestRelease_isIdempotent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		errs := make(chan error)
		for range 8 {
			go func() { errs <- lease.Release(t.Context()) }()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		next := mustAcquire(t, l)
		mustRelease(t, lease)
		if next.Err() != nil || !s.state(t).Held {
			t.Error("a repeated release ended the next lease")
		}
		if n := s.Calls(drivertest.Release); n != 1 {
			t.Errorf("%d requests", n)
		}
		mustRelease(t, next)
	})
	var none *distlock.Lease
	if err := none.Release(t.Context()); err != nil {
		t.Errorf("Release of nil: %v", err)
	}
}

func TestRelease_canBeTriedAgain(t *testing.T) {
	for name, fault := range map[string]func(drivertest.Call) drivertest.Fault{
		"request lost": always(drivertest.Release, errBroken), "answer lost": after(drivertest.Release, errBroken),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newService()
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				s.Inject(fault)
				if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrUnavailable) {
					t.Errorf("Release: %v", err)
				}
				if cause := context.Cause(lease.Context()); cause != distlock.ErrNotHeld {
					t.Errorf("cause %v", cause)
				}
				s.Inject(nil)
				mustRelease(t, lease)
				if s.state(t).Held {
					t.Error("the lock stands")
				}
			})
		})
	}
}

func TestRelease_saysIfTheLockWasLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.steal(t)
		next := mustAcquire(t, s.locker(t, distlock.Options{}))
		mustRelease(t, next)
		for range 2 {
			if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
				t.Errorf("Release: %v, want ErrLost", err)
			}
		}
	})
}

func TestRelease_duringARenewalIsNoLoss(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		seen := &recorder{t: t}
		lease := mustAcquire(t, s.locker(t, distlock.Options{Observer: seen}))
		answer := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend {
				return drivertest.Fault{HoldBefore: answer}
			}
			return drivertest.Fault{}
		})
		time.Sleep(ttl/3 + time.Millisecond)
		mustRelease(t, lease)
		close(answer)
		synctest.Wait()
		if got := seen.outcomes(); slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, "lost") }) {
			t.Errorf("operations %q", got)
		}
	})
}

func TestRelease_byTwoAtOnceIsOne(t *testing.T) {
	for name, fault := range map[string]error{"it works": nil, "it fails": errBroken} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newService()
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				answer := make(chan struct{})
				s.Inject(func(c drivertest.Call) drivertest.Fault {
					return drivertest.Fault{HoldBefore: answer, Before: fault}
				})
				first, second := make(chan error), make(chan error)
				go func() { first <- lease.Release(t.Context()) }()
				synctest.Wait()
				go func() { second <- lease.Release(t.Context()) }()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := lease.Release(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrUnavailable) {
					t.Errorf("a third, cancelled: %v", err)
				}
				close(answer)
				for _, err := range []error{<-first, <-second} {
					if errors.Is(err, distlock.ErrUnavailable) != (fault != nil) {
						t.Errorf("Release: %v", err)
					}
				}
				if n := s.Calls(drivertest.Release); n != 1 {
					t.Errorf("%d requests", n)
				}
				s.Inject(nil)
			})
		})
	}
}
