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

// inOwnContexts runs work with each kind of context that ends with its lease, while an answer takes a second.
func inOwnContexts(t *testing.T,
	work func(t *testing.T, ctx context.Context, l *distlock.Locker, lease *distlock.Lease, s *service) error) {
	do := func(ctx context.Context, l *distlock.Locker, fn func(context.Context, *distlock.Lease) error) error {
		return l.Do(ctx, key, func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, key)
			return fn(ctx, lease)
		})
	}
	for name, with := range map[string]func(
		context.Context, *distlock.Locker, func(context.Context, *distlock.Lease) error) error{
		"Do": do,
		"Guard": func(ctx context.Context, l *distlock.Locker, fn func(context.Context, *distlock.Lease) error) error {
			return do(ctx, l, func(ctx context.Context, lease *distlock.Lease) error {
				return lease.Guard(ctx, func(ctx context.Context) error { return fn(ctx, lease) })
			})
		},
		"Context": func(ctx context.Context, l *distlock.Locker, fn func(context.Context, *distlock.Lease) error) error {
			return do(ctx, l, func(_ context.Context, lease *distlock.Lease) error { return fn(lease.Context(), lease) })
		},
		"derived": func(ctx context.Context, l *distlock.Locker, fn func(context.Context, *distlock.Lease) error) error {
			return do(ctx, l, func(ctx context.Context, lease *distlock.Lease) error {
				ctx, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				return fn(ctx, lease)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{})
				err := with(t.Context(), l, func(ctx context.Context, lease *distlock.Lease) error {
					s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldAfter: in(time.Second)} })
					start := time.Now()
					if err := work(t, ctx, l, lease, s); err != nil || time.Since(start) != time.Second {
						t.Errorf("%v after %s, want nil after one round trip", err, time.Since(start))
					}
					s.Inject(nil)
					return nil
				})
				if err != nil && !errors.Is(err, distlock.ErrClosed) {
					t.Errorf("the work: %v", err)
				}
			})
		})
	}
}

func TestRelease_ownContext_oneRoundTrip(t *testing.T) {
	inOwnContexts(t, func(t *testing.T, ctx context.Context, _ *distlock.Locker, lease *distlock.Lease, s *service) error {
		if err := lease.Release(ctx); err != nil {
			return err
		}
		s.wantFree(t)
		if n := s.Calls(drivertest.Release); n != 1 {
			t.Errorf("%d requests", n)
		}
		return nil
	})
}

func TestRelease_ownContext_behindAnother(t *testing.T) {
	inOwnContexts(t, func(_ *testing.T, ctx context.Context, _ *distlock.Locker, lease *distlock.Lease, _ *service) error {
		first := make(chan error, 1)
		go func() { first <- lease.Release(context.WithoutCancel(ctx)) }()
		synctest.Wait()
		return errors.Join(lease.Release(ctx), <-first)
	})
}

func TestClose_ownContext_waits(t *testing.T) {
	inOwnContexts(t, func(_ *testing.T, ctx context.Context, l *distlock.Locker, _ *distlock.Lease, _ *service) error {
		return l.Close(ctx)
	})
}

func TestExtend_ownContext_oneRoundTrip(t *testing.T) {
	inOwnContexts(t, func(_ *testing.T, ctx context.Context, _ *distlock.Locker, lease *distlock.Lease, _ *service) error {
		return lease.Extend(ctx, ttl-time.Millisecond)
	})
}

func TestRaiseToken_ownContext_oneRoundTrip(t *testing.T) {
	inOwnContexts(t, func(_ *testing.T, ctx context.Context, _ *distlock.Locker, lease *distlock.Lease, _ *service) error {
		return fencing.RaiseToken(ctx, lease, lease.Fence()+10)
	})
}

// The release ends the context, so only the deadline of the caller is left of it.
func TestRelease_ownContext_deadlineCounts(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		_ = l.Do(t.Context(), key, func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, key)
			answer := make(chan struct{})
			defer close(answer)
			s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldBefore: answer} })
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			start := time.Now()
			err := lease.Release(ctx)
			if took := time.Since(start); took < time.Second || took > time.Second+50*time.Millisecond ||
				!errors.Is(err, distlock.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %s: %v", took, err)
			}
			return nil
		})
	})
}
