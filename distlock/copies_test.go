package distlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// A request can reach the backend a second time at any later moment: clients replay requests, and
// networks delay them. These tests deliver such copies.

// replays has the client send requests more than once, or once again.
func (s *service) replays(twice bool) {
	s.Change(func() {
		s.OnAcquire, s.OnRelease = nil, nil
		if twice {
			s.OnAcquire = func(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
				reply, err := s.Driver().Acquire(ctx, req)
				reply.Replayed = true
				return reply, err
			}
			s.OnRelease = func(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
				reply, err := s.Driver().Release(ctx, req)
				reply.Replayed = true
				return reply, err
			}
		}
	})
}

// The copy arrives when the lease, and others after it, are over.
func TestAcquire_S1_aCopyOfAReplayedOneRaisesNoGhost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		s.replays(true)
		mustRelease(t, mustAcquire(t, s.locker(t)))
		late := s.Granted()
		s.replays(false)
		s.comeAndGo(t)
		s.wantNoGhost(t, late)
	})
}

// A tombstone outlasts a short TTL, whatever ended the acquire of which a copy is under way.
func TestTombstone_S1_outlastsAShortTTL(t *testing.T) {
	each(t, map[string]func(*testing.T, *distlock.Lease){
		"released": mustRelease,
		"lost":     func(_ *testing.T, lease *distlock.Lease) { <-lease.Context().Done() },
	}, func(t *testing.T, s *service, end func(*testing.T, *distlock.Lease)) {
		s.replays(true)
		end(t, mustAcquire(t, s.locker(t, withTTL(time.Second), unrenewed)))
		late := s.Granted()
		time.Sleep(time.Second)
		s.replays(false)
		s.comeAndGo(t)
		time.Sleep(20 * time.Second)
		s.wantNoGhost(t, late)
	})
}

func TestAcquire_aLateCopyOfABusyOneRaisesNoGhost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		holder := mustAcquire(t, s.locker(t))
		s.replays(true)
		wantErr(t, second(s.locker(t).TryAcquire(t.Context(), key)), distlock.ErrNotAcquired)
		synctest.Wait()
		mustRelease(t, holder)
		asked, _ := s.Asked()
		s.wantNoGhost(t, asked[len(asked)-1])
	})
}

// If a release was sent twice and found nothing, the first copy has released the lock, or a failover
// had lost the lock before. Do returns the error of its work alone.
func TestRelease_sentTwice_foundNothing(t *testing.T) {
	each(t, map[string]bool{"by the client": true, "by a second call": false},
		func(t *testing.T, s *service, byClient bool) {
			l, others := s.locker(t), s.twin().locker(t)
			lose := func() { // in a failover
				s.steal(t)
				for range 2 {
					mustRelease(t, mustAcquire(t, others))
				}
			}
			s.replays(byClient)
			lease := mustAcquire(t, l)
			lose()
			if !byClient {
				s.Inject(always(drivertest.Release, errSilence))
				wantErr(t, lease.Release(t.Context()), distlock.ErrOutcomeUnknown)
				s.Inject(nil)
			}
			for range 3 {
				wantErr(t, lease.Release(t.Context()), distlock.ErrOutcomeUnknown, distlock.ErrLost)
			}
			wantErr(t, lease.Err(), distlock.ErrNotHeld)
			if byClient {
				wantErr(t, l.Do(t.Context(), key, func(context.Context) error { lose(); return nil }), nil)
			}
		})
}

func TestLease_N_marginIsLeftToTheWorkThatIsTold(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.locker(t, withTTL(30*time.Second), unrenewed), s.locker(t)
		wantErr(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(200 * time.Millisecond) // rolling back
			wantErr(t, second(other.TryAcquire(t.Context(), key)), distlock.ErrNotAcquired)
			return nil
		}), distlock.ErrLost)
		time.Sleep(100 * time.Millisecond) // the margin is over, the service's TTL is not
		wantErr(t, second(other.TryAcquire(t.Context(), key)), nil)
	})
}
