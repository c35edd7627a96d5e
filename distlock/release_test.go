package distlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestRelease_worksWithACancelledContext(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		if s.state(t).Held {
			t.Error("the lock stands")
		}
	})
}

// A healthy service that takes a moment is waited for even by a caller who has left.
func TestRelease_cancelledContext_outcome(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.Inject(func(drivertest.Call) drivertest.Fault {
			return drivertest.Fault{HoldAfter: in(10 * time.Millisecond)}
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

func TestRelease_isIdempotent(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		errs := make(chan error)
		for range 8 {
			go func() { errs <- lease.Release(t.Context()) }()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		next := mustAcquire(t, l)
		mustRelease(t, lease)
		if next.Err() != nil || !s.state(t).Held {
			t.Error("a repeated release ended the next lease")
		}
		if n := s.Calls(drivertest.Release); n != 1 {
			t.Errorf("%d requests", n)
		}
		mustRelease(t, next)
	})
	var none *distlock.Lease
	if err := none.Release(t.Context()); err != nil {
		t.Errorf("Release of nil: %v", err)
	}
}

func TestRelease_canBeTriedAgain(t *testing.T) {
	for name, fault := range map[string]func(drivertest.Call) drivertest.Fault{
		"request lost": always(drivertest.Release, errBroken), "answer lost": after(drivertest.Release, errBroken),
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				s.Inject(fault)
				if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrOutcomeUnknown) {
					t.Errorf("Release: %v", err)
				}
				if cause := context.Cause(lease.Context()); cause != distlock.ErrNotHeld {
					t.Errorf("cause %v", cause)
				}
				s.Inject(nil)
				if s.state(t).Held {
					mustRelease(t, lease)
				} else { // the next grants replace the note of this release
					mustRelease(t, mustAcquire(t, s.locker(t, distlock.Options{})))
					if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrOutcomeUnknown) {
						t.Errorf("Release again: %v", err)
					}
				}
				if s.state(t).Held {
					t.Error("the lock stands")
				}
			})
		})
	}
}

func TestRelease_saysIfTheLockWasLost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.steal(t)
		next := mustAcquire(t, s.locker(t, distlock.Options{}))
		mustRelease(t, next)
		answer := make(chan struct{})
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldAfter: answer} })
		errs := make(chan error)
		for range 2 {
			go func() { errs <- lease.Release(t.Context()) }()
		}
		synctest.Wait()
		close(answer)
		for _, err := range []error{<-errs, <-errs, lease.Release(t.Context())} {
			if !errors.Is(err, distlock.ErrLost) {
				t.Errorf("Release: %v, want ErrLost", err)
			}
		}
	})
}

// paused is a driver whose process stops for a while before it sends a release.
type paused struct {
	driver.Driver
	pause time.Duration
}

func (d paused) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	time.Sleep(d.pause)
	return d.Driver.Release(context.WithoutCancel(ctx), req)
}

// The lease was ended in time. The answer cannot say whether its lock was there until then.
func TestRelease_N_pausedBeforeItsRequest_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, open(t, paused{s.Faults, ttl}, distlock.Options{TTL: ttl}))
		err := lease.Release(t.Context())
		if !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrLost) {
			t.Errorf("Release: %v", err)
		}
	})
}

// An answer after the release to an earlier request is neither a loss nor a reason to renew.
func TestRelease_duringAnExtensionIsNoLoss(t *testing.T) {
	for _, arrives := range []string{"before the release", "after it"} {
		for name, ask := range map[string]func(*distlock.Lease){
			"a renewal": func(*distlock.Lease) { time.Sleep(ttl/3 + time.Millisecond) },
			"an Extend": func(lease *distlock.Lease) { go func() { _ = lease.Extend(context.Background(), time.Minute) }() },
		} {
			t.Run(name+" that arrives "+arrives, func(t *testing.T) {
				inService(t, func(t *testing.T, s *service) {
					seen := &recorder{t: t}
					lease := mustAcquire(t, s.locker(t, distlock.Options{Observer: seen}))
					answer := make(chan struct{})
					s.Inject(func(c drivertest.Call) drivertest.Fault {
						switch {
						case c.Op != drivertest.Extend:
							return drivertest.Fault{}
						case arrives == "after it":
							return drivertest.Fault{HoldBefore: answer}
						default:
							return drivertest.Fault{HoldAfter: answer}
						}
					})
					ask(lease)
					synctest.Wait()
					mustRelease(t, lease)
					close(answer)
					synctest.Wait()
					time.Sleep(ttl)
					if got := seen.outcomes(); slices.ContainsFunc(got, func(s string) bool {
						return strings.HasPrefix(s,
							distlock.OpLost)
					}) {
						t.Errorf("operations %q", got)
					}
					if err := lease.Err(); !errors.Is(err, distlock.ErrNotHeld) {
						t.Errorf("Err: %v", err)
					}
					if n := s.Calls(drivertest.Extend); n != 1 {
						t.Errorf("%d extensions were sent, want the one before the release", n)
					}
				})
			})
		}
	}
}

func TestRelease_byTwoAtOnceIsOne(t *testing.T) {
	for name, fault := range map[string]error{"it works": nil, "it fails": errBroken} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				answer := make(chan struct{})
				s.Inject(func(c drivertest.Call) drivertest.Fault {
					return drivertest.Fault{HoldBefore: answer, Before: fault}
				})
				first, second := make(chan error), make(chan error)
				go func() { first <- lease.Release(t.Context()) }()
				synctest.Wait()
				go func() { second <- lease.Release(t.Context()) }()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := lease.Release(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrOutcomeUnknown) ||
					!strings.Contains(err.Error(), "another call of Release is still under way") {
					t.Errorf("a third, cancelled: %v", err)
				}
				close(answer)
				for _, err := range []error{<-first, <-second} {
					if errors.Is(err, distlock.ErrOutcomeUnknown) != (fault != nil) {
						t.Errorf("Release: %v", err)
					}
				}
				want := 1
				if fault != nil { // the second tries, too
					want = 2
				}
				if n := s.Calls(drivertest.Release); n != want {
					t.Errorf("%d requests, want %d", n, want)
				}
				s.Inject(nil)
			})
		})
	}
}

// A renewal after the release would keep a free lock alive until the release reaches the backend.
func TestRelease_L_nothingIsRenewedOnceItIsSent(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		stuck := make(chan struct{})
		s.Inject(on(drivertest.Release, drivertest.Fault{HoldBefore: stuck}))
		released := make(chan error, 1)
		go func() { released <- lease.Release(context.Background()) }()
		time.Sleep(ttl * 9 / 10) // a renewal is due every third of the TTL
		if calls := s.Calls(drivertest.Extend); calls != 0 {
			t.Errorf("%d renewals were sent", calls)
		}
		close(stuck)
		if err := <-released; err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}
