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
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// wantOwn fails the test unless err is that of a ctx which has ended, and speaks of no backend.
func wantOwn(t *testing.T, err error) {
	t.Helper()
	wantErr(t, err, context.DeadlineExceeded, distlock.ErrUnavailable, distlock.ErrOutcomeUnknown)
	if outcome := distlock.OutcomeOf(err); outcome != distlock.OutcomeCancelled {
		t.Errorf("%v: its outcome is %s", err, outcome)
	}
}

func TestLocker_C_expiredContext_isNoOutage(t *testing.T) {
	each(t, calls, func(t *testing.T, s *service, call func(context.Context, *distlock.Locker, *distlock.Lease) error) {
		if strings.HasSuffix(t.Name(), "/Release") { // goes on without its caller
			return
		}
		l := s.locker(t)
		lease := mustAcquire(t, l)
		for range 20 { // select chooses by chance
			wantOwn(t, call(ctxFor(t, 0), l, lease))
		}
		if sent := s.Calls(drivertest.Acquire) + s.Calls(drivertest.Extend) + s.Calls(drivertest.Inspect); sent != 1 {
			t.Errorf("%d requests were sent, want that of the lease alone", sent)
		}
	})
}

func TestAcquire_C_deadlineDuringTheRequest_isNoOutage(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		s.Inject(all(drivertest.Fault{HoldBefore: in(time.Hour)}))
		wantOwn(t, second(l.Acquire(ctxFor(t, time.Second), key)))
		s.Inject(nil)
	})
}

// What became of a request is a type: nothing was written, refused, or unknown.
func TestErrors_C_kindOfFailure(t *testing.T) {
	replayed := func(err error) error { return fmt.Errorf("%w: %w", driver.ErrReplayed, err) }
	type row struct{ cause, read, write error }
	unavailable, refused, unknown := distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown
	each(t, map[string]row{
		"not done":            {driver.ErrNotDone, unavailable, unavailable},
		"temporary":           {driver.ErrTemporary, unavailable, unavailable},
		"refused":             {driver.ErrRefused, refused, refused},
		"foreign":             {driver.ErrForeign, refused, refused},
		"lost":                {errors.New("connection reset"), unavailable, unknown},
		"temporary, replayed": {replayed(driver.ErrTemporary), unavailable, unknown},
		"refused, replayed":   {replayed(driver.ErrRefused), refused, unknown},
	}, func(t *testing.T, s *service, c row) {
		l := s.locker(t)
		lease := mustAcquire(t, l)
		s.Inject(cutOff(c.cause))
		for name, got := range map[string]struct{ err, want error }{
			"TryAcquire": {second(l.TryAcquire(t.Context(), "another")), c.read},
			"Inspect":    {second(l.Inspect(t.Context(), key)), c.read},
			"Extend":     {lease.Extend(t.Context(), ttl), c.write},
			"RaiseToken": {fencing.RaiseToken(t.Context(), lease, lease.Fence()), c.read},
			"Release":    {lease.Release(t.Context()), c.write},
		} {
			for _, kind := range []error{unavailable, refused, unknown} {
				if errors.Is(got.err, kind) != (kind == got.want) {
					t.Errorf("%s: %v, want %v", name, got.err, got.want)
				}
			}
		}
		s.Inject(nil)
	})
}

func TestExtend_N_underItsLostLeaseIsLost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.steal(t)
		wantErr(t, lease.Extend(t.Context(), ttl), distlock.ErrLost)
		for range 100 { // select chooses by chance
			wantErr(t, lease.Extend(lease.Context(), ttl), distlock.ErrLost)
		}
	})
}

// The context of one caller has nothing to do with the error of another.
func TestRelease_C_behindAnotherThatLeaves(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.Inject(all(drivertest.Fault{HoldBefore: in(time.Hour)}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		first := async(func() error { return lease.Release(ctx) })
		synctest.Wait()
		wantErr(t, lease.Release(t.Context()), distlock.ErrOutcomeUnknown, context.Canceled)
		wantAll(t, <-first, context.Canceled, distlock.ErrOutcomeUnknown)
		s.Inject(nil)
	})
}

func TestGuard_N_detachedContextInside(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		wantAll(t, lease.Guard(t.Context(), func(ctx context.Context) error {
			return lease.Guard(context.WithoutCancel(ctx), func(ctx context.Context) error {
				time.Sleep(2 * ttl)
				return ctx.Err()
			})
		}), distlock.ErrLost, context.Canceled)
	})
}
