package distlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

var errWork = errors.New("the work failed")

func TestDo_releasesWhenTheWorkPanics(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not come through")
				}
			}()
			_ = l.Do(t.Context(), key, func(context.Context) error { panic("boom") })
		}()
		if s.state(t).Held {
			t.Error("the lock stands")
		}
	})
}

func TestDo_underAnEndedLeaseDoesNotRun(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		var kept context.Context
		if err := l.Do(t.Context(), key, func(ctx context.Context) error { kept = ctx; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := l.Do(kept, key, ranT(t)); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("after the end: %v, want ErrNotHeld", err)
		}
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			s.steal(t)
			<-ctx.Done()
			return l.Do(ctx, key, ranT(t))
		})
		if !errors.Is(err, distlock.ErrLost) {
			t.Errorf("after the loss: %v, want ErrLost", err)
		}
	})
}

func ranT(t *testing.T) func(context.Context) error {
	return func(context.Context) error { t.Error("the work ran"); return nil }
}

func TestDo_N_lossCancelsTheWorkAndIsReported(t *testing.T) {
	for name, work := range map[string]error{"work succeeds": nil, "work fails": errWork} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{})
				err := l.Do(t.Context(), key, func(ctx context.Context) error {
					s.Inject(cutOff(errBroken))
					<-ctx.Done()
					if context.Cause(ctx) != distlock.ErrLost {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					return work
				})
				if !errors.Is(err, distlock.ErrLost) || work != nil && !errors.Is(err, work) {
					t.Errorf("Do: %v", err)
				}
			})
		})
	}
}

// The deadline has not passed and no renewal was due, but the lock was gone: the release finds out.
func TestDo_reportsALossThatOnlyTheReleaseSees(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		err := l.Do(t.Context(), key, func(context.Context) error {
			s.steal(t)
			mustRelease(t, mustAcquire(t, s.locker(t, distlock.Options{})))
			return errWork
		})
		if !errors.Is(err, distlock.ErrLost) || !errors.Is(err, errWork) {
			t.Errorf("Do: %v", err)
		}
	})
}

func TestDo_aFailedReleaseIsLoggedNotReturned(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var log strings.Builder
		l := s.locker(t, distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.Inject(always(drivertest.Release, errBroken))
		if err := l.Do(t.Context(), key, func(context.Context) error { return nil }); err != nil {
			t.Errorf("Do: %v", err)
		}
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "could not be released") || strings.Contains(text, key) {
			t.Errorf("log: %s", text)
		}
	})
}

func TestDo_contextEndsWithTheCallers(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		err := l.Do(ctx, key, func(ctx context.Context) error {
			cancel(errWork)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if err != errWork {
			t.Errorf("Do: %v", err)
		}
		if s.state(t).Held {
			t.Error("the lock stands")
		}
	})
}

// An error says once that the lease is lost, and why, whatever the work returns.
func TestDo_lostLease_reportedOnce(t *testing.T) {
	for name, work := range map[string]func(context.Context, *distlock.Locker) error{
		"the cause":                func(ctx context.Context, _ *distlock.Locker) error { return context.Cause(ctx) },
		"the error of its context": func(ctx context.Context, _ *distlock.Locker) error { return ctx.Err() },
		"another Acquire": func(ctx context.Context, l *distlock.Locker) error {
			return second(l.Acquire(ctx,
				"another"))
		},
		"an inner Do": func(ctx context.Context, l *distlock.Locker) error { return l.Do(ctx, key, ranT(t)) },
		"an Extend": func(ctx context.Context, l *distlock.Locker) error {
			lease, _ := l.FromContext(ctx, key)
			return lease.Extend(ctx, ttl)
		},
		"nothing": func(context.Context, *distlock.Locker) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, unrenewed)
				lost := func(ctx context.Context) error {
					<-ctx.Done()
					return work(ctx, l)
				}
				for call, err := range map[string]error{
					"Do": l.Do(t.Context(), key, lost), "Guard": mustAcquire(t, l).Guard(t.Context(), lost),
				} {
					if !errors.Is(err, distlock.ErrLost) || strings.Count(err.Error(), "lease lost") != 1 ||
						!strings.Contains(err.Error(), "its deadline passed") {
						t.Errorf("%s: %v", call, err)
					}
				}
			})
		})
	}
}

// A Do that joins the lease of another reports its loss too.
func TestDo_N_aLossIsReportedByTheInnerOnesToo(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, unrenewed)
		late := func(context.Context) error { time.Sleep(ttl); return errWork }
		_ = l.Do(t.Context(), key, func(ctx context.Context) error {
			if err := l.Do(ctx, key, late); !errors.Is(err, distlock.ErrLost) || !errors.Is(err, errWork) {
				t.Errorf("Do: %v", err)
			}
			return nil
		})
		lease := mustAcquire(t, l)
		_ = lease.Guard(t.Context(), func(ctx context.Context) error {
			if err := lease.Guard(ctx, late); !errors.Is(err, distlock.ErrLost) || !errors.Is(err, errWork) {
				t.Errorf("Guard: %v", err)
			}
			return nil
		})
	})
}

// A detached context does not end with the lease, so the inner Do has its work join the lease again.
func TestDo_N_insideDoEndsWithTheLease(t *testing.T) {
	for name, detach := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"without cancelling": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithoutCancel(ctx), func() {}
		},
		"with a deadline of its own": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{})
				err := l.Do(t.Context(), key, func(ctx context.Context) error {
					detached, cancel := detach(ctx)
					defer cancel()
					return l.Do(detached, key, func(ctx context.Context) error {
						s.Inject(cutOff(errBroken))
						select {
						case <-ctx.Done():
						case <-time.After(ttl):
						}
						if cause := context.Cause(ctx); cause != distlock.ErrLost {
							t.Errorf("a TTL after the service went away, the cause of the work is %v, want ErrLost", cause)
						}
						return nil
					})
				})
				if !errors.Is(err, distlock.ErrLost) {
					t.Errorf("Do: %v", err)
				}
			})
		})
	}
}
