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

// frees is the write of a store: it releases the lock for its owner.
func (s *service) frees(t *testing.T, owner string) driver.ReleaseReply {
	t.Helper()
	request := driver.ReleaseRequest{Name: s.granted().Name, Owner: owner}
	reply, err := s.spy.Driver.Release(context.Background(), request)
	if err != nil || owner == "" {
		t.Errorf("the write of the owner %q: %v", owner, err)
	}
	return reply
}

// lastWrite makes a last write in a step of the lease, and returns the owner that it was given.
func lastWrite(
	t *testing.T, lease *distlock.Lease, write func(owner string) (driver.ReleaseReply, error),
) (given string) {
	t.Helper()
	err := lease.Guard(context.Background(), func(ctx context.Context) error {
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

// The release that follows is that of every lease, but needs no request.
func TestReleaseWith_released_noOtherRequest(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		l := s.locker(t, distlock.Options{Observer: seen})
		var lease *distlock.Lease
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			lease, _ = l.FromContext(ctx, key)
			lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) { return s.frees(t, owner), nil })
			if err := lease.Err(); !errors.Is(err, distlock.ErrNotHeld) {
				t.Errorf("after the write the lease is held: %v", err)
			}
			return nil
		})
		if n := s.Calls(drivertest.Release); err != nil || n != 0 {
			t.Errorf("Do: %v, with %d requests to release", err, n)
		}
		if err := lease.Err(); !errors.Is(err, distlock.ErrNotHeld) || errors.Is(err, distlock.ErrLost) {
			t.Errorf("the lease: %v", err)
		}
		release := seen.ended[len(seen.ended)-1]
		want := []string{"distlock.acquire acquired", "distlock.release done"}
		if got := seen.outcomes(); !slices.Equal(got, want) || release.Attempts != 0 || release.Handoff != "" {
			t.Errorf("the Observer saw %q, the release %+v; want %q without a request", got, release, want)
		}
		s.wantFree(t)
	})
}

// The lock is free in the backend, so no waiter of this process may go on with its grant.
func TestReleaseWith_S1_released_noLocalHandoff(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		time.Sleep(time.Millisecond)
		var next <-chan *distlock.Lease
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			reply := s.frees(t, owner)
			next = queues(t, l)
			return reply, nil
		})
		mustRelease(t, lease)
		if err := (<-next).Extend(t.Context(), ttl); err != nil {
			t.Errorf("the next lease: %v", err)
		}
	})
}

// A write that leaves the lock alone leaves the lease as it was.
func TestReleaseWith_N_notReleased_leaseGoesOn(t *testing.T) {
	for name, err := range map[string]error{
		"refused": nil, "not sent": driver.ErrNotDone, "later": driver.ErrTemporary,
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				write := func(string) (driver.ReleaseReply, error) { return driver.ReleaseReply{}, err }
				for range 2 {
					if lastWrite(t, lease, write) == "" {
						t.Error("the write was not to release the lock")
					}
				}
				time.Sleep(2 * ttl)
				if err := lease.Err(); err != nil {
					t.Errorf("two TTLs later: %v", err)
				}
				mustRelease(t, lease)
				s.wantFree(t)
			})
		})
	}
}

// A renewal that arrives after the release would be refused, and the lease would seem lost.
func TestReleaseWith_N_noRenewalDuringTheWrite(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			reply := s.frees(t, owner)
			time.Sleep(ttl / 2)
			return reply, nil
		})
		if n, err := s.Calls(drivertest.Extend), lease.Err(); n != 0 || errors.Is(err, distlock.ErrLost) {
			t.Errorf("%d renewals, and the lease: %v", n, err)
		}
	})
}

// The answer to a renewal of before may come while the write is under way.
func TestReleaseWith_N_lateRenewal_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		arrives := make(chan struct{})
		s.Inject(nth(drivertest.Extend, 0, drivertest.Fault{HoldBefore: arrives}))
		time.Sleep(ttl/3 + time.Millisecond)
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			reply := s.frees(t, owner)
			close(arrives)
			synctest.Wait()
			return reply, nil
		})
		if n, err := s.Calls(drivertest.Extend), lease.Err(); n != 1 || errors.Is(err, distlock.ErrLost) {
			t.Errorf("%d renewals, and the lease: %v", n, err)
		}
	})
}

// queues starts an acquisition that waits in the process, and returns what it gets.
func queues(t *testing.T, l *distlock.Locker) <-chan *distlock.Lease {
	t.Helper()
	got := make(chan *distlock.Lease, 1)
	go func() {
		lease, err := l.Acquire(context.Background(), key)
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
	for name, answer := range map[string]struct {
		reply driver.ReleaseReply
		err   error
	}{
		"no answer":       {driver.ReleaseReply{}, errBroken},
		"more copies":     {driver.ReleaseReply{Replayed: true}, nil},
		"refused, copies": {driver.ReleaseReply{}, errors.Join(driver.ErrReplayed, driver.ErrTemporary)},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{})
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
				if err := second.Extend(t.Context(), ttl); err != nil {
					t.Errorf("the next lease: %v", err)
				}
			})
		})
	}
}

// Without an answer the lease is not renewed: its own Release follows.
func TestReleaseWith_N_unknown_noRenewal(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		lastWrite(t, lease, func(string) (driver.ReleaseReply, error) { return driver.ReleaseReply{}, errBroken })
		time.Sleep(ttl / 2)
		if n := s.Calls(drivertest.Extend); n != 0 {
			t.Errorf("%d renewals", n)
		}
		if owner := lastWrite(t, lease, noEffect); owner != "" {
			t.Error("another write is to release the lock, too")
		}
		mustRelease(t, lease)
		s.wantFree(t)
	})
}

// The write may have released the lock, so a Release that finds another owner is no sign of a loss.
func TestReleaseWith_N_unknownThenNotHeld_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			_ = s.frees(t, owner)
			others := s.twin().locker(t, distlock.Options{})
			for range 3 {
				mustRelease(t, mustAcquire(t, others))
			}
			return driver.ReleaseReply{}, errBroken
		})
		err := lease.Release(t.Context())
		if !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrLost) {
			t.Errorf("Release: %v, want ErrOutcomeUnknown alone", err)
		}
	})
}

// A Release whose ctx has ended does not wait for the write, which may have released the lock.
func TestReleaseWith_N_releaseDuringTheWrite_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			reply := s.frees(t, owner)
			others := s.twin().locker(t, distlock.Options{})
			for range 3 {
				mustRelease(t, mustAcquire(t, others))
			}
			left, cancel := context.WithCancel(t.Context())
			cancel()
			err := lease.Release(left)
			if !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrLost) {
				t.Errorf("Release: %v, want ErrOutcomeUnknown alone", err)
			}
			return reply, nil
		})
	})
}

// A write that has left the lock alone hides no loss.
func TestReleaseWith_N_notReleasedThenNotHeld_lost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		lastWrite(t, lease, noEffect)
		s.steal(t)
		others := s.twin().locker(t, distlock.Options{})
		for range 3 {
			mustRelease(t, mustAcquire(t, others))
		}
		if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	})
}

// An Extend finds no lock, which is no loss.
func TestReleaseWith_N_extendDuringTheWrite_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			reply := s.frees(t, owner)
			err := lease.Extend(t.Context(), ttl/2)
			if !errors.Is(err, distlock.ErrUnavailable) || lease.Err() != nil {
				t.Errorf("Extend: %v, want ErrUnavailable; the lease: %v", err, lease.Err())
			}
			return reply, nil
		})
		mustRelease(t, lease)
	})
}

// A raise of the token would find no lock, which is no loss: not during the write, and not after a
// lost answer.
func TestReleaseWith_N_raiseFindsNoLock_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		raise := func(when string) {
			err := fencing.RaiseToken(t.Context(), lease, lease.Fence()+1)
			if !errors.Is(err, distlock.ErrUnavailable) || lease.Err() != nil {
				t.Errorf("RaiseToken %s: %v, want ErrUnavailable; the lease: %v", when, err, lease.Err())
			}
		}
		lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) {
			_ = s.frees(t, owner)
			raise("during the write")
			return driver.ReleaseReply{}, errBroken
		})
		raise("after it")
		mustRelease(t, lease)
	})
}

// A waiter of this process gets the lock without a round trip, so the write leaves the lock alone.
func TestReleaseWith_localWaiter_localHandoff(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		time.Sleep(time.Millisecond)
		next := queues(t, l)
		if owner := lastWrite(t, lease, noEffect); owner != "" {
			t.Error("the write is to release the lock")
		}
		mustRelease(t, lease)
		if second := <-next; second.Fence() != lease.Fence()+1 || s.Calls(drivertest.Release) != 0 {
			t.Errorf("no local handoff: token %d after %d", second.Fence(), lease.Fence())
		}
	})
}

// A late copy of the acquire would be granted after the release, so that needs a tombstone.
func TestReleaseWith_S1_acquireSentTwice_plain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		r := &replaying{spy: s.spy}
		lease := mustAcquire(t, r.locker(t))
		if owner := lastWrite(t, lease, noEffect); owner != "" {
			t.Error("the write is to release the lock")
		}
	})
}

// A lease that has ended, or that Close ends, has no last write.
func TestReleaseWith_endedLease_plain(t *testing.T) {
	for name, end := range map[string]func(context.Context, *distlock.Lease){
		"lost":     func(context.Context, *distlock.Lease) { time.Sleep(ttl) },
		"released": func(ctx context.Context, lease *distlock.Lease) { _ = lease.Release(ctx) },
		"closing": func(_ context.Context, lease *distlock.Lease) {
			go func() { _ = fencing.Locker(lease).Close(context.Background()) }()
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
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
		})
	}
}

// A lease that was lost during the write stays lost, whatever the answer.
func TestReleaseWith_N_lostDuringTheWrite(t *testing.T) {
	for name, released := range map[string]bool{"released": true, "not released": false} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				lastWrite(t, lease, func(string) (driver.ReleaseReply, error) {
					time.Sleep(ttl)
					return driver.ReleaseReply{Released: released}, nil
				})
				if err := lease.Err(); !errors.Is(err, distlock.ErrLost) {
					t.Errorf("after its deadline: %v", err)
				}
				time.Sleep(ttl)
				if n := s.Calls(drivertest.Extend); n != 0 {
					t.Errorf("%d renewals of a lost lease", n)
				}
			})
		})
	}
}

// A process that pauses between its last write and the end of the lease has lost nothing.
func TestReleaseWith_N_pausedAfterRelease_noLoss(t *testing.T) {
	for name, ended := range map[string]func(*distlock.Lease) error{
		"Err":    func(lease *distlock.Lease) error { return lease.Err() },
		"Extend": func(lease *distlock.Lease) error { return lease.Extend(context.Background(), ttl) },
		"none":   func(*distlock.Lease) error { return distlock.ErrNotHeld },
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				seen := &recorder{t: t}
				lease := mustAcquire(t, s.locker(t, distlock.Options{Observer: seen}))
				lastWrite(t, lease, func(owner string) (driver.ReleaseReply, error) { return s.frees(t, owner), nil })
				time.Sleep(ttl)
				if err := ended(lease); !errors.Is(err, distlock.ErrNotHeld) || errors.Is(err, distlock.ErrLost) {
					t.Errorf("the lease: %v", err)
				}
				if cause := context.Cause(lease.Context()); cause != distlock.ErrNotHeld {
					t.Errorf("the cause is %v", cause)
				}
				mustRelease(t, lease)
				synctest.Wait()
				want := []string{"distlock.acquire acquired", "distlock.release done"}
				if got := seen.outcomes(); !slices.Equal(got[:1], want[:1]) || got[len(got)-1] != want[1] ||
					slices.Contains(got, "distlock.lost lost") {
					t.Errorf("the Observer saw %q", got)
				}
			})
		})
	}
}

// A write that panics may have released the lock.
func TestReleaseWith_S1_panic_isUnknown(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		func() {
			defer func() { _ = recover() }()
			lastWrite(t, lease, func(string) (driver.ReleaseReply, error) { panic("boom") })
		}()
		if owner := lastWrite(t, lease, noEffect); owner != "" {
			t.Error("another write is to release the lock")
		}
		mustRelease(t, lease)
		s.wantFree(t)
	})
}
