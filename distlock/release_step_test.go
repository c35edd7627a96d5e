package distlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
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

// The step's own Release decides, and the other has its result.
func TestRelease_insideAStep_endsItAtOnce(t *testing.T) {
	for name, other := range map[string]func(*distlock.Locker, *distlock.Lease) error{
		"alone": nil,
		"while another Release waits": func(_ *distlock.Locker, le *distlock.Lease) error {
			return le.Release(context.Background())
		},
		"while Close waits": func(l *distlock.Locker, _ *distlock.Lease) error { return l.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{})
				lease := mustAcquire(t, l)
				s.Inject(on(drivertest.Release, drivertest.Fault{HoldAfter: in(time.Second)}))
				start, ended := time.Now(), make(chan error, 1)
				err := lease.Guard(t.Context(), func(ctx context.Context) error {
					if other != nil {
						go func() { ended <- other(l, lease) }()
						synctest.Wait()
					}
					err := lease.Release(ctx)
					if context.Cause(ctx) != distlock.ErrNotHeld || lease.Guard(ctx, ranT(t)) == nil {
						t.Errorf("the step goes on: %v", context.Cause(ctx))
					}
					return err
				})
				if err != nil || time.Since(start) != time.Second || s.Calls(drivertest.Release) != 1 {
					t.Errorf("%v after %s, %d requests", err, time.Since(start), s.Calls(drivertest.Release))
				}
				if other != nil {
					if err := <-ended; err != nil || s.state(t).Held {
						t.Errorf("the other: %v, %+v", err, s.state(t))
					}
				}
			})
		})
	}
}

// A step of several writes is not torn when the process shuts down.
func TestRelease_waits_stepGoesOn(t *testing.T) {
	for name, release := range map[string]func(*distlock.Locker, *distlock.Lease) error{
		"Release": func(_ *distlock.Locker, le *distlock.Lease) error { return le.Release(context.Background()) },
		"Close":   func(l *distlock.Locker, _ *distlock.Lease) error { return l.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{})
				lease := mustAcquire(t, l)
				released := make(chan error, 1)
				fine := func(context.Context) error { return nil }
				err := lease.Guard(lease.Context(), func(ctx context.Context) error {
					go func() { released <- release(l, lease) }()
					time.Sleep(ttl - time.Millisecond)
					for call, err := range map[string]error{
						"Guard":      lease.Guard(ctx, fine),
						"Do":         l.Do(context.WithoutCancel(ctx), key, fine),
						"Err":        lease.Err(),
						"RaiseToken": fencing.RaiseToken(ctx, lease, lease.Fence()+10),
						"Extend":     lease.Extend(ctx, ttl),
						"ctx":        ctx.Err(),
					} {
						if err != nil {
							t.Errorf("%s of the step: %v", call, err)
						}
					}
					for call, err := range map[string]error{
						"Guard": lease.Guard(t.Context(), ranT(t)),
						"Do":    l.Do(lease.Context(), key, ranT(t)),
					} {
						if !errors.Is(err, distlock.ErrNotHeld) || errors.Is(err, distlock.ErrLost) {
							t.Errorf("%s outside of the step: %v, want ErrNotHeld", call, err)
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("the step: %v", err)
				}
				if err := <-released; err != nil || s.state(t).Held {
					t.Errorf("%s: %v, %+v", name, err, s.state(t))
				}
			})
		})
	}
}
