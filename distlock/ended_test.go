package distlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// ends is an Observer that counts leases: each one begins with its acquire and ends once.
type ends struct {
	t     *testing.T
	mu    sync.Mutex
	holds map[string]bool // by key and token
	list  []string        // the operations that have ended leases, and how long these were held
}

func (e *ends) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (e *ends) End(_ context.Context, op *distlock.Operation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lease := fmt.Sprint(op.Key, " ", op.Fence)
	switch {
	case op.Outcome == distlock.OutcomeAcquired:
		e.holds[lease] = true
	case !op.Ended && op.Held != 0:
		e.t.Errorf("%s ended no lease, but Held is %s", op.Name, op.Held)
	case op.Ended && !e.holds[lease]:
		e.t.Errorf("%s ended the lease %s a second time or before its acquire", op.Name, lease)
	case op.Ended:
		delete(e.holds, lease)
		e.list = append(e.list, fmt.Sprint(op.Name, " ", op.Outcome, " ", op.Held))
	}
}

// want fails the test unless all leases have ended, by the listed operations.
func (e *ends) want(list ...string) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.holds) > 0 || !slices.Equal(e.list, list) {
		e.t.Errorf("the leases were ended by %q, want %q; %v stand", e.list, list, e.holds)
	}
}

func TestOperation_Ended_oncePerLease(t *testing.T) {
	const second = time.Second
	// Each case ends its lease after a second.
	type row struct {
		run  func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease)
		want []string
	}
	each(t, map[string]row{
		"release": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second)
			mustRelease(t, lease)
			mustRelease(t, lease)
		}, []string{"distlock.release done 1s"}},
		"release repeated after a failure": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second)
			s.Inject(always(drivertest.Release, errBroken))
			for range 3 {
				_ = lease.Release(t.Context())
				time.Sleep(second / 10)
			}
			s.Inject(nil)
			_ = lease.Release(t.Context())
		}, []string{"distlock.release unknown 1s"}},
		"answer lost": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second)
			s.Inject(after(drivertest.Release, errBroken))
			_ = lease.Release(t.Context())
			_ = lease.Release(t.Context())
		}, []string{"distlock.release unknown 1s"}},
		"release finds it lost": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second - time.Millisecond) // just before its renewal
			s.steal(t)
			mustRelease(t, mustAcquire(t, open(t, s.Faults)))
			_ = lease.Release(t.Context())
			_ = lease.Release(t.Context())
		}, []string{"distlock.release lost 999ms"}},
		"two releases at once": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second)
			s.Inject(on(drivertest.Release, drivertest.Fault{HoldAfter: in(second / 10)}))
			go func() { _ = lease.Release(t.Context()) }()
			mustRelease(t, lease)
		}, []string{"distlock.release done 1s"}},
		"driver panics in the release": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second - time.Millisecond) // just before its renewal
			s.endsNext(func() { panic("driver") })
			without(func() { _ = lease.Release(t.Context()) })
		}, []string{"distlock.release failed 999ms"}},
		"last write": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second)
			lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) { return s.frees(t, owner), nil })
			mustRelease(t, lease)
		}, []string{"distlock.release done 1s"}},
		"loss": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			s.steal(t)
			time.Sleep(second)
			_ = lease.Extend(t.Context(), ttl)
			_ = lease.Release(t.Context())
		}, []string{"distlock.lost lost 1s"}},
		"loss while a release waits for a step": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			step := make(chan struct{})
			async(func() error {
				return lease.Guard(t.Context(), func(context.Context) error { <-step; return nil })
			})
			synctest.Wait()
			time.AfterFunc(second/2, func() { s.steal(t) })
			_ = lease.Release(t.Context())
			close(step)
		}, []string{"distlock.lost lost 1s"}},
		"close": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second)
			mustClose(t, l)
			_ = lease.Release(t.Context())
		}, []string{"distlock.release done 1s"}},
		"close without the service": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			time.Sleep(second)
			s.Inject(always(drivertest.Release, errTurnedAway))
			mustClose(t, l)
			_ = lease.Release(t.Context())
		}, []string{"distlock.release unavailable 1s"}},
		"handoff within the process": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			go func() {
				next := mustAcquire(t, l)
				time.Sleep(second)
				mustRelease(t, next)
			}()
			time.Sleep(time.Millisecond)
			mustRelease(t, lease)
			time.Sleep(2 * second)
			_ = lease.Release(t.Context())
		}, []string{"distlock.release done 1ms", "distlock.release done 1s"}},
		"handoff to a lease that is lost": {func(t *testing.T, s *service, l *distlock.Locker, lease *distlock.Lease) {
			go func() {
				next := mustAcquire(t, l)
				s.steal(t)
				<-next.Context().Done()
				_ = next.Release(t.Context())
			}()
			time.Sleep(time.Millisecond)
			mustRelease(t, lease)
			time.Sleep(2 * second)
		}, []string{"distlock.release done 1ms", "distlock.lost lost 999ms"}},
	}, func(t *testing.T, s *service, c row) {
		seen := &ends{t: t, holds: map[string]bool{}}
		l := s.locker(t, seenBy(seen))
		c.run(t, s, l, mustAcquire(t, l))
		s.Inject(nil)
		mustClose(t, l)
		seen.want(c.want...)
	})
}

// A lease that ends while the hook of its acquire blocks is reported after that acquire.
func TestOperation_Ended_afterTheAcquire(t *testing.T) {
	type row struct {
		meanwhile func(s *service, l *distlock.Locker)
		want      string
	}
	each(t, map[string]row{
		"loss":  {func(s *service, _ *distlock.Locker) { s.steal(t) }, "distlock.lost lost 1s"},
		"close": {func(_ *service, l *distlock.Locker) { go mustClose(t, l) }, "distlock.release done 500ms"},
	}, func(t *testing.T, s *service, c row) {
		seen := &ends{t: t, holds: map[string]bool{}}
		slow := atEnd(distlock.OpAcquire, func() { time.Sleep(10 * time.Second) })
		l := s.locker(t, seenBy(distlock.Observers(seen, slow)))
		time.AfterFunc(500*time.Millisecond, func() { c.meanwhile(s, l) })
		lease := mustAcquire(t, l)
		_ = lease.Release(t.Context())
		synctest.Wait()
		seen.want(c.want)
	})
}
