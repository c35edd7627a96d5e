package distlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/lastwrite"
)

// lastWrite makes a last write in a step of the lease, and returns the owner that it was given.
func lastWrite(
	t *testing.T, lease *distlock.Lease, write func(owner string) (driver.ReleaseReply, error),
) (given string) {
	t.Helper()
	err := lease.Guard(context.Background(), func(context.Context) error {
		lastwrite.ReleaseWith(lease, func(owner string) (driver.ReleaseReply, error) {
			given = owner
			return write(owner)
		})
		return nil
	})
	if err != nil && !errors.Is(err, distlock.ErrLost) {
		t.Errorf("the step: %v", err)
	}
	return given
}

func noEffect(string) (driver.ReleaseReply, error) { return driver.ReleaseReply{}, nil }

// wantPlain fails the test if a last write is to release the lock.
func wantPlain(t *testing.T, lease *distlock.Lease) {
	t.Helper()
	if owner := lastWrite(t, lease, noEffect); owner != "" {
		t.Error("the write is to release the lock")
	}
}

// freed makes a last write that releases the lock, and does more before it answers.
func (s *service) freed(t *testing.T, lease *distlock.Lease, more func()) {
	t.Helper()
	lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
		reply := s.frees(t, owner)
		more()
		return reply, nil
	})
}

// The release that follows is that of every lease, but needs no request.
func TestReleaseWith_released_noOtherRequest(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		l := s.locker(t, seenBy(seen))
		var lease *distlock.Lease
		wantErr(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			lease, _ = l.FromContext(ctx, key)
			s.freed(t, lease, func() {})
			wantErr(t, lease.Err(), distlock.ErrNotHeld)
			return nil
		}), nil)
		s.wantCalls(t, drivertest.Release, 0)
		wantErr(t, lease.Err(), distlock.ErrNotHeld, distlock.ErrLost)
		if release := seen.ended[len(seen.ended)-1]; release.Attempts != 0 || release.Handoff != "" {
			t.Errorf("the Observer saw the release %+v, want one without a request", release)
		}
		seen.want("distlock.acquire acquired", "distlock.release done")
		s.wantFree(t)
	})
}

// The lock is free in the backend, so no waiter of this process may go on with its grant.
func TestReleaseWith_S1_released_noLocalHandoff(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		lease := mustAcquire(t, l)
		time.Sleep(time.Millisecond)
		var next <-chan *distlock.Lease
		s.freed(t, lease, func() {
			next = queues(t, l)
		})
		mustRelease(t, lease)
		wantErr(t, (<-next).Extend(t.Context(), ttl), nil)
	})
}

// A write that leaves the lock alone leaves the lease as it was.
func TestReleaseWith_N_notReleased_leaseGoesOn(t *testing.T) {
	each(t, map[string]error{
		"refused": nil, "not sent": driver.ErrNotDone, "later": driver.ErrTemporary,
	}, func(t *testing.T, s *service, err error) {
		lease := mustAcquire(t, s.locker(t))
		write := func(string) (driver.ReleaseReply, error) { return driver.ReleaseReply{}, err }
		for range 2 {
			if lastWrite(t, lease, write) == "" {
				t.Error("the write was not to release the lock")
			}
		}
		time.Sleep(2 * ttl)
		wantErr(t, lease.Err(), nil)
		mustRelease(t, lease)
		s.wantFree(t)
	})
}

// A renewal that arrives after the release would be refused, and the lease would seem lost.
func TestReleaseWith_N_noRenewalDuringTheWrite(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.freed(t, lease, func() {
			time.Sleep(ttl / 2)
		})
		s.wantCalls(t, drivertest.Extend, 0)
		wantErr(t, lease.Err(), distlock.ErrNotHeld, distlock.ErrLost)
	})
}

// The answer to a renewal of before may come while the write is under way.
func TestReleaseWith_N_lateRenewal_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		arrives := make(chan struct{})
		s.Inject(nth(drivertest.Extend, 0, drivertest.Fault{HoldBefore: arrives}))
		time.Sleep(ttl/3 + time.Millisecond)
		s.freed(t, lease, func() {
			close(arrives)
			synctest.Wait()
		})
		s.wantCalls(t, drivertest.Extend, 1)
		wantErr(t, lease.Err(), distlock.ErrNotHeld, distlock.ErrLost)
	})
}

// queues starts an acquisition that waits in the process, and returns what it gets.
func queues(t *testing.T, l *distlock.Locker, with ...distlock.CallOption) <-chan *distlock.Lease {
	t.Helper()
	got := make(chan *distlock.Lease, 1)
	go func() {
		lease, err := l.Acquire(context.Background(), key, with...)
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	synctest.Wait()
	return got
}

// The write, or a copy of it, may release the lock of its owner at any later time. A local handoff
// would leave that owner to the next lease.
func TestReleaseWith_S1_unknown_noLocalHandoff(t *testing.T) {
	type row struct {
		reply driver.ReleaseReply
		err   error
	}
	each(t, map[string]row{
		"no answer":       {driver.ReleaseReply{}, errBroken},
		"more copies":     {driver.ReleaseReply{Replayed: true}, nil},
		"refused, copies": {driver.ReleaseReply{}, errors.Join(driver.ErrReplayed, driver.ErrTemporary)},
	}, func(t *testing.T, s *service, answer row) {
		l := s.locker(t)
		lease := mustAcquire(t, l)
		time.Sleep(time.Millisecond) // tokens come with time
		var next <-chan *distlock.Lease
		var owner string
		lastWrite(t, lease, func(of string) (driver.ReleaseReply, error) {
			owner, next = of, queues(t, l)
			return answer.reply, answer.err
		})
		mustRelease(t, lease)
		second := <-next
		_ = s.frees(t, owner) // a late copy
		wantErr(t, second.Extend(t.Context(), ttl), nil)
	})
}

// Without an answer the lease is not renewed: its own Release follows.
func TestReleaseWith_N_unknown_noRenewal(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		lastWrite(t, lease, func(string) (driver.ReleaseReply, error) { return driver.ReleaseReply{}, errBroken })
		time.Sleep(ttl / 2)
		s.wantCalls(t, drivertest.Extend, 0)
		wantPlain(t, lease)
		mustRelease(t, lease)
		s.wantFree(t)
	})
}

// The write may have released the lock, so a Release that finds another owner is no sign of a loss.
func TestReleaseWith_N_unknownThenNotHeld_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			_ = s.frees(t, owner)
			s.comeAndGo(t)
			return driver.ReleaseReply{}, errBroken
		})
		wantErr(t, lease.Release(t.Context()), distlock.ErrOutcomeUnknown, distlock.ErrLost)
	})
}

// A Release whose ctx has ended does not wait for the write, which may have released the lock.
func TestReleaseWith_N_releaseDuringTheWrite_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.freed(t, lease, func() {
			s.comeAndGo(t)
			wantErr(t, lease.Release(leftCtx(t)), distlock.ErrOutcomeUnknown, distlock.ErrLost)
		})
	})
}

// A write that has left the lock alone hides no loss.
func TestReleaseWith_N_notReleasedThenNotHeld_lost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		lastWrite(t, lease, noEffect)
		s.steal(t)
		s.comeAndGo(t)
		wantErr(t, lease.Release(t.Context()), distlock.ErrLost)
	})
}

// An Extend finds no lock, which is no loss.
func TestReleaseWith_N_extendDuringTheWrite_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.freed(t, lease, func() {
			wantErr(t, lease.Extend(t.Context(), ttl/2), distlock.ErrUnavailable)
			wantErr(t, lease.Err(), nil)
		})
		mustRelease(t, lease)
	})
}

// A raise of the token would find no lock, which is no loss: not during the write, and not after a
// lost answer.
func TestReleaseWith_N_raiseFindsNoLock_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		raise := func() {
			wantErr(t, fencing.RaiseToken(t.Context(), lease, lease.Fence()+1), distlock.ErrUnavailable)
			wantErr(t, lease.Err(), nil)
		}
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			_ = s.frees(t, owner)
			raise()
			return driver.ReleaseReply{}, errBroken
		})
		raise()
		mustRelease(t, lease)
	})
}

// A waiter of this process gets the lock without a round trip, so the write leaves the lock alone.
func TestReleaseWith_localWaiter_localHandoff(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		lease := mustAcquire(t, l)
		time.Sleep(time.Millisecond)
		next := queues(t, l)
		wantPlain(t, lease)
		mustRelease(t, lease)
		if second := <-next; second.Fence() != lease.Fence()+1 || s.Calls(drivertest.Release) != 0 {
			t.Errorf("no local handoff: token %d after %d", second.Fence(), lease.Fence())
		}
	})
}

// A late copy of the acquire would be granted after the release, so that needs a tombstone.
func TestReleaseWith_S1_acquireSentTwice_plain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		s.replays(true)
		lease := mustAcquire(t, s.locker(t))
		wantPlain(t, lease)
	})
}

// A lease that has ended, or that Close ends, has no last write.
func TestReleaseWith_endedLease_plain(t *testing.T) {
	each(t, map[string]func(context.Context, *distlock.Lease){
		"lost":     func(context.Context, *distlock.Lease) { time.Sleep(ttl) },
		"released": func(ctx context.Context, lease *distlock.Lease) { _ = lease.Release(ctx) },
		"closing": func(_ context.Context, lease *distlock.Lease) {
			go func() { _ = fencing.Locker(lease).Close(context.Background()) }()
			synctest.Wait()
		},
	}, func(t *testing.T, s *service, end func(context.Context, *distlock.Lease)) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		_ = lease.Guard(t.Context(), func(ctx context.Context) error {
			end(ctx, lease)
			lastwrite.ReleaseWith(lease, func(owner string) (driver.ReleaseReply, error) {
				if owner != "" {
					t.Error("the write is to release the lock")
				}
				return driver.ReleaseReply{}, nil
			})
			return nil
		})
	})
}

// A lease that was lost during the write stays lost, whatever the answer.
func TestReleaseWith_N_lostDuringTheWrite(t *testing.T) {
	each(t, map[string]bool{"released": true, "not released": false}, func(t *testing.T, s *service, released bool) {
		lease := mustAcquire(t, s.locker(t))
		lastWrite(t, lease, func(string) (driver.ReleaseReply, error) {
			time.Sleep(ttl)
			return driver.ReleaseReply{Released: released}, nil
		})
		wantErr(t, lease.Err(), distlock.ErrLost)
		time.Sleep(ttl)
		s.wantCalls(t, drivertest.Extend, 0)
	})
}

// A process that pauses between its last write and the end of the lease has lost nothing.
func TestReleaseWith_N_pausedAfterRelease_noLoss(t *testing.T) {
	each(t, map[string]func(*distlock.Lease) error{
		"Err":    func(lease *distlock.Lease) error { return lease.Err() },
		"Extend": func(lease *distlock.Lease) error { return lease.Extend(context.Background(), ttl) },
		"none":   func(*distlock.Lease) error { return distlock.ErrNotHeld },
	}, func(t *testing.T, s *service, ended func(*distlock.Lease) error) {
		seen := &recorder{t: t}
		lease := mustAcquire(t, s.locker(t, seenBy(seen)))
		s.freed(t, lease, func() {})
		time.Sleep(ttl)
		wantErr(t, ended(lease), distlock.ErrNotHeld, distlock.ErrLost)
		wantCause(t, lease.Context(), distlock.ErrNotHeld)
		mustRelease(t, lease)
		synctest.Wait()
		want := []string{"distlock.acquire acquired", "distlock.release done"}
		if got := seen.outcomes(); !slices.Equal(got[:1], want[:1]) || got[len(got)-1] != want[1] ||
			slices.Contains(got, "distlock.lost lost") {
			t.Errorf("the Observer saw %q", got)
		}
	})
}

// A write that panics may have released the lock.
func TestReleaseWith_S1_panic_isUnknown(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		func() {
			defer func() { _ = recover() }()
			lastWrite(t, lease, func(string) (driver.ReleaseReply, error) { panic("boom") })
		}()
		wantPlain(t, lease)
		mustRelease(t, lease)
		s.wantFree(t)
	})
}
