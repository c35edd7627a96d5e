package distlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// A request can reach the backend a second time at any later moment: clients replay requests, and
// networks delay them. These tests deliver such copies.

// replaying says that its client has sent requests more than once, and keeps the last acquire.
type replaying struct {
	*spy
	copy driver.AcquireRequest
}

func (r *replaying) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	r.copy = req
	reply, err := r.spy.Acquire(ctx, req)
	reply.Replayed = true
	return reply, err
}

func (r *replaying) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	reply, err := r.spy.Release(ctx, req)
	reply.Replayed = true
	return reply, err
}

func (r *replaying) locker(t *testing.T) *distlock.Locker {
	t.Helper()
	l := open(t, r, distlock.Options{TTL: ttl})
	return l
}

// The copy arrives when the lease, and others after it, are over.
func TestAcquire_S1_aCopyOfAReplayedOneRaisesNoGhost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		r := &replaying{spy: s.spy}
		l := r.locker(t)
		mustRelease(t, mustAcquire(t, l))
		copied, others := r.copy, s.locker(t, distlock.Options{})
		for range 3 {
			mustRelease(t, mustAcquire(t, others))
		}
		if reply, err := s.spy.Driver.Acquire(t.Context(), copied); err != nil || s.state(t).Held {
			t.Errorf("a late copy of the acquire was answered %+v, %v", reply, err)
		}
	})
}

// A tombstone outlasts a short TTL, whatever ended the acquire of which a copy is under way.
func TestTombstone_S1_outlastsAShortTTL(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *distlock.Lease){
		"released": func(t *testing.T, lease *distlock.Lease) { mustRelease(t, lease) },
		"lost":     func(_ *testing.T, lease *distlock.Lease) { <-lease.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				r := &replaying{spy: s.spy}
				end(t, mustAcquire(t, open(t, r, distlock.Options{TTL: time.Second, RenewEvery: -1})))
				copied, others := r.copy, s.locker(t, distlock.Options{})
				time.Sleep(time.Second)
				for range 3 {
					mustRelease(t, mustAcquire(t, others))
				}
				time.Sleep(20 * time.Second)
				if reply, err := s.spy.Driver.Acquire(t.Context(), copied); err != nil || s.state(t).Held {
					t.Errorf("20 s later, a copy of the acquire was answered %+v, %v", reply, err)
				}
			})
		})
	}
}

func TestAcquire_aLateCopyOfABusyOneRaisesNoGhost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		holder := mustAcquire(t, s.locker(t, distlock.Options{}))
		r := &replaying{spy: s.spy}
		if _, err := r.locker(t).TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Fatalf("TryAcquire: %v", err)
		}
		synctest.Wait()
		mustRelease(t, holder)
		if _, err := s.spy.Driver.Acquire(t.Context(), r.copy); err != nil || s.state(t).Held {
			t.Errorf("a ghost holds the lock: %+v, %v", s.state(t), err)
		}
	})
}

// Without a copy under way there is nothing to clean up, however far away the service is.
func TestAcquire_aSlowAnswerLeavesNothingToCleanUp(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		holder := mustAcquire(t, s.twin().locker(t, distlock.Options{}))
		s.Inject(func(drivertest.Call) drivertest.Fault {
			return drivertest.Fault{HoldAfter: in(100 * time.Millisecond)}
		})
		for range 10 {
			if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("TryAcquire: %v", err)
			}
		}
		time.Sleep(time.Second)
		if n := s.Calls(drivertest.Release); n != 0 {
			t.Errorf("%d clean-ups", n)
		}
		mustRelease(t, holder)
		mustRelease(t, mustAcquire(t, l))
		if reply, err := s.spy.Driver.Inspect(t.Context(), driver.Name{Namespace: "distlock", Key: key}); err != nil ||
			reply.Held {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}

// If a release was sent twice and found nothing, the first copy has released the lock, or a failover
// had lost the lock before. Do returns the error of its work alone.
func TestRelease_sentTwice_foundNothing(t *testing.T) {
	for name, test := range map[string]struct {
		over   func(*service) driver.Driver
		before func(*service, *distlock.Lease) // the last request
	}{
		"by the client": {
			over:   func(s *service) driver.Driver { return &replaying{spy: s.spy} },
			before: func(*service, *distlock.Lease) {},
		},
		"by a second call": {
			over: func(s *service) driver.Driver { return s.Faults },
			before: func(s *service, lease *distlock.Lease) {
				s.Inject(always(drivertest.Release, errSilence))
				if err := lease.Release(context.Background()); !errors.Is(err, distlock.ErrOutcomeUnknown) {
					t.Errorf("a Release without an answer: %v", err)
				}
				s.Inject(nil)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l, others := open(t, test.over(s), distlock.Options{TTL: ttl}), s.twin().locker(t, distlock.Options{})
				lose := func() { // in a failover
					s.steal(t)
					for range 2 {
						mustRelease(t, mustAcquire(t, others))
					}
				}
				lease := mustAcquire(t, l)
				lose()
				test.before(s, lease)
				for n := range 3 {
					err := lease.Release(t.Context())
					if !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrLost) {
						t.Errorf("Release %d: %v, want ErrOutcomeUnknown", n, err)
					}
				}
				if err := lease.Err(); !errors.Is(err, distlock.ErrNotHeld) {
					t.Errorf("Err: %v", err)
				}
				if name == "by the client" {
					if err := l.Do(t.Context(), key, func(context.Context) error { lose(); return nil }); err != nil {
						t.Errorf("Do: %v", err)
					}
				}
			})
		})
	}
}

func TestLease_N_marginIsLeftToTheWorkThatIsTold(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.locker(t, distlock.Options{TTL: 30 * time.Second, RenewEvery: -1}), s.locker(t, distlock.Options{})
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(200 * time.Millisecond) // rolling back
			if _, err := other.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("another one, while the work ends: %v", err)
			}
			return nil
		})
		if !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Do: %v", err)
		}
		time.Sleep(100 * time.Millisecond) // the margin is over, the service's TTL is not
		if _, err := other.TryAcquire(t.Context(), key); err != nil {
			t.Errorf("after the margin: %v", err)
		}
	})
}
