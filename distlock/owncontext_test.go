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

// own is a lease, and a context that ends with it.
type own struct {
	*service
	t     *testing.T
	ctx   context.Context
	l     *distlock.Locker
	lease *distlock.Lease
}

// inOwnContexts runs work with each kind of context that ends with its lease, while an answer takes a second.
func inOwnContexts(t *testing.T, work func(own) error) {
	type kind = func(context.Context, *distlock.Lease, func(context.Context) error) error
	each(t, map[string]kind{
		"Do": func(ctx context.Context, _ *distlock.Lease, fn func(context.Context) error) error { return fn(ctx) },
		"Guard": func(ctx context.Context, lease *distlock.Lease, fn func(context.Context) error) error {
			return lease.Guard(ctx, fn)
		},
		"Context": func(_ context.Context, lease *distlock.Lease, fn func(context.Context) error) error {
			return fn(lease.Context())
		},
		"derived": func(ctx context.Context, _ *distlock.Lease, fn func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			return fn(ctx)
		},
	}, func(t *testing.T, s *service, with kind) {
		l := s.locker(t)
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, key)
			return with(ctx, lease, func(ctx context.Context) error {
				s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldAfter: in(time.Second)} })
				start := time.Now()
				wantErr(t, work(own{s, t, ctx, l, lease}), nil)
				wantTook(t, start, time.Second) // one round trip
				s.Inject(nil)
				return nil
			})
		})
		if err != nil && !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("the work: %v", err)
		}
	})
}

func TestRelease_ownContext_oneRoundTrip(t *testing.T) {
	inOwnContexts(t, func(o own) error {
		err := o.lease.Release(o.ctx)
		o.wantFree(o.t)
		o.wantCalls(o.t, drivertest.Release, 1)
		return err
	})
}

func TestRelease_ownContext_behindAnother(t *testing.T) {
	inOwnContexts(t, func(o own) error {
		first := async(func() error { return o.lease.Release(context.WithoutCancel(o.ctx)) })
		synctest.Wait()
		return errors.Join(o.lease.Release(o.ctx), <-first)
	})
}

func TestClose_ownContext_waits(t *testing.T) {
	inOwnContexts(t, func(o own) error { return o.l.Close(o.ctx) })
}

func TestExtend_ownContext_oneRoundTrip(t *testing.T) {
	inOwnContexts(t, func(o own) error { return o.lease.Extend(o.ctx, ttl-time.Millisecond) })
}

func TestRaiseToken_ownContext_oneRoundTrip(t *testing.T) {
	inOwnContexts(t, func(o own) error { return fencing.RaiseToken(o.ctx, o.lease, o.lease.Fence()+10) })
}

// The release ends the context, so only the deadline of the caller is left of it.
func TestRelease_ownContext_deadlineCounts(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		_ = l.Do(t.Context(), key, func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, key)
			s.Inject(all(drivertest.Fault{HoldBefore: in(time.Hour)}))
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			start := time.Now()
			wantAll(t, lease.Release(ctx), distlock.ErrOutcomeUnknown, context.DeadlineExceeded)
			if took := time.Since(start); took < time.Second || took > time.Second+50*time.Millisecond {
				t.Errorf("Release took %s", took)
			}
			return nil
		})
	})
}
