package distlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestRelease_waitsForTheStepUnderWay(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		begun, step, late := make(chan struct{}), make(chan error), make(chan error)
		go func() {
			step <- lease.Guard(t.Context(), func(ctx context.Context) error {
				close(begun)
				time.Sleep(ttl - 10*time.Millisecond) // longer than a period: renewal goes on
				if !s.state(t).Held {
					t.Error("the lock was released under a step")
				}
				return ctx.Err()
			})
		}()
		<-begun
		go func() { late <- lease.Guard(t.Context(), ranT(t)) }() // queued when the release begins
		synctest.Wait()
		mustRelease(t, lease)
		if err := <-step; err != nil {
			t.Errorf("the step: %v", err)
		}
		if err := <-late; !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("a step after the release: %v, want ErrNotHeld", err)
		}
		if s.state(t).Held {
			t.Error("the lock stands")
		}
	})
}

func TestRelease_doesNotWaitForAStuckStepForEver(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		begun := make(chan struct{})
		step := make(chan error)
		go func() {
			step <- lease.Guard(t.Context(), func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-begun
		start := time.Now()
		mustRelease(t, lease)
		if waited := time.Since(start); waited != ttl {
			t.Errorf("Release waited for %s, want one TTL", waited)
		}
		if err := <-step; !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("the step: %v", err)
		}
	})
}

func TestRelease_cancelledContext_endsTheStep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lease := mustAcquire(t, newService().locker(t, distlock.Options{}))
		begun, step := make(chan struct{}), make(chan error)
		go func() {
			step <- lease.Guard(t.Context(), func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-begun
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := lease.Release(ctx); err != nil || time.Since(start) > 50*time.Millisecond {
			t.Errorf("Release: %v after %s", err, time.Since(start))
		}
		if err := <-step; !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("the step: %v", err)
		}
	})
}

// A lease whose release waits for a step can still be lost, and both end in time.
func TestRelease_N_theDeadlineHoldsWhileItWaits(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.Inject(always(drivertest.Extend, errBroken))
		begun, step := make(chan struct{}), make(chan error)
		start := time.Now()
		go func() {
			step <- lease.Guard(t.Context(), func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				if took := time.Since(start); took >= ttl || !s.state(t).Held {
					t.Errorf("the step was cancelled after %s", took)
				}
				time.Sleep(ttl) // takes no notice
				return nil
			})
		}()
		<-begun
		time.Sleep(ttl / 2)
		if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrLost) || time.Since(start) >= ttl {
			t.Errorf("Release: %v after %s", err, time.Since(start))
		}
		if err := <-step; !errors.Is(err, distlock.ErrLost) {
			t.Errorf("the step: %v", err)
		}
	})
}

func TestRelease_insideAStepDoesNotWaitForItself(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lease := mustAcquire(t, newService().locker(t, distlock.Options{}))
		start := time.Now()
		err := lease.Guard(t.Context(), func(ctx context.Context) error { return lease.Release(ctx) })
		if err != nil || time.Since(start) > 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
