package distlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

func TestJoin_carriesTheLease(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		ctx, leave := fencing.Join(t.Context(), lease)
		if got, ok := l.FromContext(ctx, key); got != lease || !ok {
			t.Errorf("the lease of the context is %v, %t", got, ok)
		}
		ran := false
		err := l.Do(ctx, key, func(ctx context.Context) error {
			return lease.Guard(ctx, func(context.Context) error { ran = true; return nil })
		})
		if err != nil || !ran {
			t.Errorf("Do and Guard with the context: %v; they ran: %t", err, ran)
		}
		leave()
		leave()
		if context.Cause(ctx) != context.Canceled || lease.Err() != nil || !s.state(t).Held {
			t.Errorf("after leaving: cause %v, the lease %v, the lock is held: %t", context.Cause(ctx), lease.Err(),
				s.state(t).Held)
		}
		mustRelease(t, lease)
	})
}

func TestJoin_N_endsWithTheLeaseAndWithItsContext(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(t *testing.T, s *service, lease *distlock.Lease, cancel context.CancelFunc)
		want error
	}{
		"lost": {func(t *testing.T, s *service, _ *distlock.Lease, _ context.CancelFunc) {
			s.steal(t)
			time.Sleep(ttl)
		}, distlock.ErrLost},
		"released": {func(t *testing.T, _ *service, lease *distlock.Lease, _ context.CancelFunc) {
			mustRelease(t, lease)
		}, distlock.ErrNotHeld},
		"cancelled": {func(_ *testing.T, _ *service, _ *distlock.Lease, cancel context.CancelFunc) { cancel() },
			context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				outer, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx, leave := fencing.Join(outer, lease)
				defer leave()
				if ctx.Err() != nil {
					t.Fatal(ctx.Err())
				}
				test.end(t, s, lease, cancel)
				synctest.Wait()
				if cause := context.Cause(ctx); !errors.Is(cause, test.want) {
					t.Errorf("the cause is %v, want %v", cause, test.want)
				}
			})
		})
	}
}

// The context of a lease that has ended has ended from the start.
func TestJoin_N_ofALeaseThatHasEndedHasEnded(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		mustRelease(t, lease)
		ctx, leave := fencing.Join(t.Context(), lease)
		defer leave()
		if ctx.Err() == nil || context.Cause(ctx) != distlock.ErrNotHeld {
			t.Errorf("error %v, cause %v", ctx.Err(), context.Cause(ctx))
		}
	})
}
