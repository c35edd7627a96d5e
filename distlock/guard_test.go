package distlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

func TestGuard_serialisesTheStepsOfALease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lease := mustAcquire(t, newService().locker(t, distlock.Options{}))
		var (
			wg     sync.WaitGroup
			inside atomic.Int32
		)
		for range 10 {
			wg.Go(func() {
				err := lease.Guard(t.Context(), func(ctx context.Context) error {
					if inside.Add(1) != 1 {
						t.Error("two steps at once")
					}
					time.Sleep(10 * time.Millisecond)
					inside.Add(-1)
					return lease.Guard(ctx, func(context.Context) error { return nil })
				})
				if err != nil {
					t.Errorf("Guard: %v", err)
				}
			})
		}
		wg.Wait()
		mustRelease(t, lease)
		if err := lease.Guard(t.Context(), ranT(t)); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("Guard after Release: %v", err)
		}
	})
}

// Waiting for the step under way ends with the caller, and with the lease.
// Whether a step is done whose caller has left is not for chance to say.
func TestGuard_beginsNothingForACallerThatHasLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lease := mustAcquire(t, newService().locker(t, distlock.Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 30 {
			if err := lease.Guard(ctx, ranT(t)); !errors.Is(err, context.Canceled) {
				t.Fatalf("Guard: %v", err)
			}
		}
		mustRelease(t, lease)
	})
}

func TestGuard_N_doesNotWaitForAStuckStep(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		hold, stuck, begun := make(chan struct{}), make(chan error), make(chan struct{})
		go func() {
			stuck <- lease.Guard(t.Context(), func(context.Context) error { close(begun); <-hold; return nil })
		}()
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := lease.Guard(ctx, ranT(t)); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Guard: %v after %s", err, time.Since(start))
		}
		if err := lease.Guard(t.Context(), ranT(t)); !errors.Is(err, distlock.ErrLost) || time.Since(start) > ttl {
			t.Errorf("Guard: %v after %s", err, time.Since(start))
		}
		close(hold)
		if err := <-stuck; !errors.Is(err, distlock.ErrLost) {
			t.Errorf("the stuck step: %v", err)
		}
	})
}

// A goroutine that a step has left behind is in no step any more, whatever its context says.
func TestGuard_aStepThatIsOver_admitsNoStep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newService().locker(t, distlock.Options{})
		check := func(ctx context.Context, lease *distlock.Lease) {
			var over context.Context
			_ = lease.Guard(ctx, func(ctx context.Context) error { over = ctx; return nil })
			ran := false
			_ = lease.Guard(ctx, func(context.Context) error {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(over), time.Second)
				defer cancel()
				if err := lease.Guard(ctx, func(context.Context) error { ran = true; return nil }); err == nil || ran {
					t.Errorf("Guard: %v", err)
				}
				return nil
			})
		}
		check(t.Context(), mustAcquire(t, l))
		_ = l.Do(t.Context(), "another", func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, "another")
			check(ctx, lease)
			return nil
		})
	})
}

// A step ends with the lease, also if its context was freed from the one that the lease's work has.
func TestGuard_N_endsWithTheLeaseWhateverItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for name, free := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"that of Do": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
			"with a deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Hour)
			},
			"without cancelling": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithoutCancel(ctx), func() {}
			},
			"cancelled by another": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithCancel(context.WithoutCancel(ctx))
			},
		} {
			s := newService()
			l := s.locker(t, distlock.Options{})
			err := l.Do(t.Context(), key, func(ctx context.Context) error {
				lease, _ := l.FromContext(ctx, key)
				ctx, cancel := free(ctx)
				defer cancel()
				return lease.Guard(ctx, func(ctx context.Context) error {
					s.Inject(cutOff(errors.New("cut off")))
					start := time.Now()
					<-ctx.Done()
					if took := time.Since(start); took > ttl || context.Cause(ctx) != distlock.ErrLost {
						t.Errorf("%s: ended after %s with %v", name, took, context.Cause(ctx))
					}
					return nil
				})
			})
			if !errors.Is(err, distlock.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
			s.Inject(nil)
		}
	})
}
