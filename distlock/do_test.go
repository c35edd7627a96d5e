package distlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

func TestDo_releasesWhenTheWorkPanics(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not come through")
				}
			}()
			_ = l.Do(t.Context(), key, func(context.Context) error { panic("boom") })
		}()
		s.wantFree(t)
	})
}

func TestDo_underAnEndedLeaseDoesNotRun(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		var kept context.Context
		must(t, l.Do(t.Context(), key, func(ctx context.Context) error { kept = ctx; return nil }))
		wantErr(t, l.Do(kept, key, ranT(t)), distlock.ErrNotHeld)
		wantErr(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			s.steal(t)
			<-ctx.Done()
			return l.Do(ctx, key, ranT(t))
		}), distlock.ErrLost)
	})
}

func TestDo_N_lossCancelsTheWorkAndIsReported(t *testing.T) {
	each(t, map[string]error{"work succeeds": nil, "work fails": errWork}, func(t *testing.T, s *service, work error) {
		err := s.locker(t).Do(t.Context(), key, func(ctx context.Context) error {
			s.Inject(cutOff(errBroken))
			<-ctx.Done()
			wantCause(t, ctx, distlock.ErrLost)
			return work
		})
		wantErr(t, err, distlock.ErrLost)
		if work != nil {
			wantErr(t, err, work)
		}
	})
}

// The deadline has not passed and no renewal was due, but the lock was gone: the release finds out.
func TestDo_reportsALossThatOnlyTheReleaseSees(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		wantAll(t, s.locker(t).Do(t.Context(), key, func(context.Context) error {
			s.steal(t)
			mustRelease(t, mustAcquire(t, s.locker(t)))
			return errWork
		}), distlock.ErrLost, errWork)
	})
}

func TestDo_contextEndsWithTheCallers(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		wantErr(t, l.Do(ctx, key, func(ctx context.Context) error {
			cancel(errWork)
			<-ctx.Done()
			return context.Cause(ctx)
		}), errWork)
		s.wantFree(t)
	})
}

// An error says once that the lease is lost, and why, whatever the work returns.
func TestDo_lostLease_reportedOnce(t *testing.T) {
	each(t, map[string]func(context.Context, *distlock.Locker) error{
		"the cause":                func(ctx context.Context, _ *distlock.Locker) error { return context.Cause(ctx) },
		"the error of its context": func(ctx context.Context, _ *distlock.Locker) error { return ctx.Err() },
		"another Acquire":          func(ctx context.Context, l *distlock.Locker) error { return second(l.Acquire(ctx, "another")) },
		"an inner Do":              func(ctx context.Context, l *distlock.Locker) error { return l.Do(ctx, key, ranT(t)) },
		"an Extend": func(ctx context.Context, l *distlock.Locker) error {
			lease, _ := l.FromContext(ctx, key)
			return lease.Extend(ctx, ttl)
		},
		"nothing": func(context.Context, *distlock.Locker) error { return nil },
	}, func(t *testing.T, s *service, work func(context.Context, *distlock.Locker) error) {
		l := s.locker(t, unrenewed)
		lost := func(ctx context.Context) error { <-ctx.Done(); return work(ctx, l) }
		for call, err := range map[string]error{
			"Do": l.Do(t.Context(), key, lost), "Guard": mustAcquire(t, l).Guard(t.Context(), lost),
		} {
			if !errors.Is(err, distlock.ErrLost) || strings.Count(err.Error(), "lease lost") != 1 ||
				!strings.Contains(err.Error(), "its deadline passed") {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
}

// A Do that joins the lease of another reports its loss too.
func TestDo_N_aLossIsReportedByTheInnerOnesToo(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, unrenewed)
		late := func(context.Context) error { time.Sleep(ttl); return errWork }
		_ = l.Do(t.Context(), key, func(ctx context.Context) error {
			wantAll(t, l.Do(ctx, key, late), distlock.ErrLost, errWork)
			return nil
		})
		lease := mustAcquire(t, l)
		_ = lease.Guard(t.Context(), func(ctx context.Context) error {
			wantAll(t, lease.Guard(ctx, late), distlock.ErrLost, errWork)
			return nil
		})
	})
}

type free = func(context.Context) (context.Context, context.CancelFunc)

// frees are ways to free a context from the lease of its work.
var frees = map[string]free{
	"without cancelling": func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithoutCancel(ctx), func() {}
	},
	"with a deadline of its own": func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
	},
	"cancelled by another": func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithCancel(context.WithoutCancel(ctx))
	},
	"not at all": func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Hour)
	},
}

// wantEnds fails the test unless ctx ends with a lease that is cut off from the service.
func (s *service) wantEnds(t *testing.T) func(context.Context) error {
	return func(ctx context.Context) error {
		s.Inject(cutOff(errBroken))
		select {
		case <-ctx.Done():
		case <-time.After(ttl):
		}
		wantCause(t, ctx, distlock.ErrLost)
		return nil
	}
}

// A detached context does not end with the lease, so the inner Do has its work join the lease again.
func TestDo_N_insideDoEndsWithTheLease(t *testing.T) {
	each(t, frees, func(t *testing.T, s *service, free free) {
		l := s.locker(t)
		wantErr(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			ctx, cancel := free(ctx)
			defer cancel()
			return l.Do(ctx, key, s.wantEnds(t))
		}), distlock.ErrLost)
	})
}

// A step ends with the lease, also if its context was freed from the one that the lease's work has.
func TestGuard_N_endsWithTheLeaseWhateverItsContext(t *testing.T) {
	each(t, frees, func(t *testing.T, s *service, free free) {
		l := s.locker(t)
		wantErr(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, key)
			ctx, cancel := free(ctx)
			defer cancel()
			return lease.Guard(ctx, s.wantEnds(t))
		}), distlock.ErrLost)
	})
}

func TestGuard_serialisesTheStepsOfALease(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		var wg sync.WaitGroup
		var inside atomic.Int32
		for range 10 {
			wg.Go(func() {
				wantErr(t, lease.Guard(t.Context(), func(ctx context.Context) error {
					if inside.Add(1) != 1 {
						t.Error("two steps at once")
					}
					time.Sleep(10 * time.Millisecond)
					inside.Add(-1)
					return lease.Guard(ctx, nothing)
				}), nil)
			})
		}
		wg.Wait()
		mustRelease(t, lease)
		wantErr(t, lease.Guard(t.Context(), ranT(t)), distlock.ErrNotHeld)
	})
}

// Whether a step is done whose caller has left is not for chance to say.
func TestGuard_beginsNothingForACallerThatHasLeft(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		for range 30 {
			wantErr(t, lease.Guard(leftCtx(t), ranT(t)), context.Canceled)
		}
		mustRelease(t, lease)
	})
}

func TestGuard_N_doesNotWaitForAStuckStep(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		hold := make(chan struct{})
		stuck := async(func() error {
			return lease.Guard(t.Context(), func(context.Context) error { <-hold; return nil })
		})
		synctest.Wait()
		start := time.Now()
		wantErr(t, lease.Guard(ctxFor(t, time.Second), ranT(t)), context.DeadlineExceeded)
		wantTook(t, start, time.Second)
		wantErr(t, lease.Guard(t.Context(), ranT(t)), distlock.ErrLost)
		if took := time.Since(start); took > ttl {
			t.Errorf("Guard took %s", took)
		}
		close(hold)
		wantErr(t, <-stuck, distlock.ErrLost)
	})
}

// A goroutine that a step has left behind is in no step any more, whatever its context says.
func TestGuard_aStepThatIsOver_admitsNoStep(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		check := func(ctx context.Context, lease *distlock.Lease) {
			var over context.Context
			_ = lease.Guard(ctx, func(ctx context.Context) error { over = ctx; return nil })
			_ = lease.Guard(ctx, func(context.Context) error {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(over), time.Second)
				defer cancel()
				if err := lease.Guard(ctx, ranT(t)); err == nil {
					t.Error("Guard: nil")
				}
				return nil
			})
		}
		check(t.Context(), mustAcquire(t, l))
		_ = l.Do(t.Context(), "another", func(ctx context.Context) error {
			lease, _ := l.FromContext(ctx, "another")
			check(ctx, lease)
			return nil
		})
	})
}

// A context shows a lease to its own Locker alone, for its own key: two Lockers may have two backends
// or namespaces.
func TestFromContext_isOfItsLockerAndKey(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.twin().locker(t), s.twin().locker(t, withNamespace("other"))
		lease := mustAcquire(t, l)
		check := func(ctx context.Context) error {
			if own, ok := l.FromContext(ctx, key); !ok || own != lease {
				t.Errorf("its own lease: %v, %t", own, ok)
			}
			if _, ok := other.FromContext(ctx, key); ok {
				t.Error("the lease of another Locker")
			}
			if _, ok := l.FromContext(ctx, key+"?"); ok {
				t.Error("the lease of another key")
			}
			return nil
		}
		_ = check(lease.Context())
		wantErr(t, lease.Guard(t.Context(), check), nil)
		theirs, err := other.Acquire(lease.Context(), key) // need not wait for this one's lease
		must(t, err)
		mustRelease(t, theirs)
		mustRelease(t, lease)
	})
}

// A lease has one attachment for each key, also for callers that come at once and after its end.
func TestAttach_onePerKeyAndLease(t *testing.T) {
	locker := newService().locker(t)
	type key string
	var made atomic.Int32
	attach := func(of key) func() any {
		lease := mustAcquire(t, locker)
		get := func() any { return fencing.Attach(lease, of, func() any { return made.Add(1) }) }
		var all sync.WaitGroup
		first := get()
		for range 8 {
			all.Go(func() {
				if got := get(); got != first {
					t.Errorf("%v, and then %v", first, got)
				}
			})
		}
		all.Wait()
		if other := fencing.Attach(lease, of+"2", func() any { return made.Add(1) }); other == first {
			t.Error("two keys share an attachment")
		}
		mustRelease(t, lease)
		return get
	}
	before := attach("a")
	if first, second := before(), attach("a")(); first != int32(1) || second == first {
		t.Errorf("%v for a lease that has ended, %v for the next one", first, second)
	}
}
