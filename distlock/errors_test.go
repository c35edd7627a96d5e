package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// ownError returns a complaint if err is not the right error of a call whose caller has left.
func ownError(err error) string {
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return "it is not the error of ctx"
	case errors.Is(err, distlock.ErrUnavailable), errors.Is(err, distlock.ErrOutcomeUnknown):
		return "it speaks of the backend"
	case distlock.OutcomeOf(err) != distlock.OutcomeCancelled:
		return "its outcome is " + string(distlock.OutcomeOf(err))
	}
	return ""
}

func TestLocker_C_expiredContext_isNoOutage(t *testing.T) {
	for name, call := range calls {
		if name == "Release" { // goes on without its caller
			continue
		}
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{})
				lease := mustAcquire(t, l)
				ctx, cancel := context.WithDeadline(t.Context(), time.Now())
				defer cancel()
				if wrong := ownError(call(ctx, l, lease)); wrong != "" {
					t.Errorf("%v: %s", call(ctx, l, lease), wrong)
				}
				if sent := s.Calls(drivertest.Acquire) + s.Calls(drivertest.Extend) + s.Calls(drivertest.Inspect); sent != 1 {
					t.Errorf("%d requests were sent, want that of the lease alone", sent)
				}
			})
		})
	}
}

func TestAcquire_C_deadlineDuringTheRequest_isNoOutage(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		answer := make(chan struct{})
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldBefore: answer} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := second(l.Acquire(ctx, key)); ownError(err) != "" {
			t.Errorf("Acquire: %v: %s", err, ownError(err))
		}
		s.Inject(nil)
		close(answer)
	})
}

// What became of a request is a type: nothing was written, refused, or unknown.
func TestErrors_C_kindOfFailure(t *testing.T) {
	replayed := func(err error) error { return fmt.Errorf("%w: %w", driver.ErrReplayed, err) }
	lost := errors.New("connection reset")
	for _, c := range []struct {
		cause       error
		read, write error
	}{
		{driver.ErrNotDone, distlock.ErrUnavailable, distlock.ErrUnavailable},
		{driver.ErrTemporary, distlock.ErrUnavailable, distlock.ErrUnavailable},
		{driver.ErrRefused, distlock.ErrRefused, distlock.ErrRefused},
		{driver.ErrForeign, distlock.ErrRefused, distlock.ErrRefused},
		{lost, distlock.ErrUnavailable, distlock.ErrOutcomeUnknown},
		{replayed(driver.ErrTemporary), distlock.ErrUnavailable, distlock.ErrOutcomeUnknown},
		{replayed(driver.ErrRefused), distlock.ErrRefused, distlock.ErrOutcomeUnknown},
	} {
		t.Run(c.cause.Error(), func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{})
				lease := mustAcquire(t, l)
				s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: c.cause} })
				for name, got := range map[string]struct{ err, want error }{
					"TryAcquire": {second(l.TryAcquire(t.Context(), "another")), c.read},
					"Inspect":    {second(l.Inspect(t.Context(), key)), c.read},
					"Extend":     {lease.Extend(t.Context(), ttl), c.write},
					"RaiseToken": {fencing.RaiseToken(t.Context(), lease, lease.Fence()), c.read},
					"Release":    {lease.Release(t.Context()), c.write},
				} {
					for _, kind := range []error{distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown} {
						if errors.Is(got.err, kind) != (kind == got.want) {
							t.Errorf("%s: %v, want %v", name, got.err, got.want)
						}
					}
				}
				s.Inject(nil)
			})
		})
	}
}

func TestAcquire_closedLockerInTheCause(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		other := s.twin().locker(t, distlock.Options{})
		holder := mustAcquire(t, other)
		closed := fmt.Errorf("shutting down: %w", distlock.ErrClosed)
		l := s.locker(t, distlock.Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(closed) })
		err := second(l.Acquire(ctx, key))
		if errors.Is(err, distlock.ErrClosed) || !errors.Is(err, context.Canceled) ||
			!errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("Acquire of an open Locker: %v", err)
		}
		mustRelease(t, holder)
	})
}

func TestExtend_N_underItsLostLeaseIsLost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.steal(t)
		if err := lease.Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrLost) {
			t.Fatalf("Extend: %v", err)
		}
		for range 100 { // select chooses by chance
			if err := lease.Extend(lease.Context(), ttl); !errors.Is(err, distlock.ErrLost) {
				t.Fatalf("Extend under its own context: %v", err)
			}
		}
	})
}

// The context of one caller has nothing to do with the error of another.
func TestRelease_C_behindAnotherThatLeaves(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		answer := make(chan struct{})
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldBefore: answer} })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		first := make(chan error, 1)
		go func() { first <- lease.Release(ctx) }()
		synctest.Wait()
		err := lease.Release(t.Context())
		if errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("Release behind a cancelled one: %v", err)
		}
		if err := <-first; !errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("the cancelled one: %v", err)
		}
		s.Inject(nil)
		close(answer)
	})
}

func TestGuard_N_detachedContextInside(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		err := lease.Guard(t.Context(), func(ctx context.Context) error {
			return lease.Guard(context.WithoutCancel(ctx), func(ctx context.Context) error {
				time.Sleep(2 * ttl)
				return ctx.Err()
			})
		})
		if !errors.Is(err, distlock.ErrLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("the inner step: %v, want that its context ended with the lease", err)
		}
	})
}
