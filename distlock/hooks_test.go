package distlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// hooks is an Observer made of functions. Either may be nil.
type hooks struct {
	start func(ctx context.Context, op *distlock.Operation) context.Context
	end   func(op *distlock.Operation)
}

func (h hooks) Start(ctx context.Context, op *distlock.Operation) context.Context {
	if h.start != nil {
		return h.start(ctx, op)
	}
	return ctx
}

func (h hooks) End(_ context.Context, op *distlock.Operation) {
	if h.end != nil {
		h.end(op)
	}
}

// atStart is an Observer whose Start of the named operation runs do.
func atStart(name string, do func()) hooks {
	return hooks{start: func(ctx context.Context, op *distlock.Operation) context.Context {
		if op.Name == name {
			do()
		}
		return ctx
	}}
}

// atEnd is an Observer whose End of the named operation runs do.
func atEnd(name string, do func()) hooks {
	return hooks{end: func(op *distlock.Operation) {
		if op.Name == name {
			do()
		}
	}}
}

// without runs f in a goroutine of its own, which f may end or let panic, and waits for it.
func without(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	<-done
}

func TestRenewals_N_slowHook_noLoss(t *testing.T) {
	for name, observer := range map[string]func(slow func()) distlock.Observer{
		"Start": func(slow func()) distlock.Observer { return atStart(distlock.OpExtend, slow) },
		"End":   func(slow func()) distlock.Observer { return atEnd(distlock.OpExtend, slow) },
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				var slept atomic.Bool
				slow := func() {
					if slept.CompareAndSwap(false, true) {
						time.Sleep(40 * time.Second)
					}
				}
				leases := acquireTogether(t, s.locker(t, distlock.Options{TTL: 30 * time.Second, Observer: observer(slow)}), 100)
				time.Sleep(time.Minute)
				wantHeld(t, leases)
			})
		})
	}
}

// badLog is a Handler that does worse than to write.
type badLog struct {
	slog.Handler
	do func()
}

func (badLog) Enabled(context.Context, slog.Level) bool { return true }
func (b badLog) Handle(context.Context, slog.Record) error {
	b.do()
	return nil
}

func TestRelease_brokenLogger_returns(t *testing.T) {
	for name, do := range map[string]func(){
		"blocks": func() { time.Sleep(20 * time.Minute) },
		"panics": func() { panic("log") },
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				var lines atomic.Int32
				l := s.locker(t, distlock.Options{Logger: slog.New(badLog{do: func() { lines.Add(1); do() }})})
				for range 2 {
					lease := mustAcquire(t, l)
					s.Inject(nth(drivertest.Release, s.Calls(drivertest.Release), drivertest.Fault{Before: errBroken}))
					start := time.Now()
					var err error
					without(func() { err = lease.Release(t.Context()) })
					if took := time.Since(start); !errors.Is(err, errBroken) || took > 0 {
						t.Errorf("Release: %v after %s, want the driver's error at once", err, took)
					}
					time.Sleep(time.Second)
				}
				time.Sleep(time.Hour) // until the log blocks no more
				if n := lines.Load(); n != 2 {
					t.Errorf("%d lines of 2 came to the Handler", n)
				}
			})
		})
	}
}

func TestRelease_L_hookPanics_lockIsFree(t *testing.T) {
	for name, observer := range map[string]distlock.Observer{
		"Start panics": atStart(distlock.OpRelease, func() { panic("hook") }),
		"End panics":   atEnd(distlock.OpRelease, func() { panic("hook") }),
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				lease := mustAcquire(t, s.locker(t, distlock.Options{Observer: observer}))
				without(func() { _ = lease.Release(t.Context()) })
				time.Sleep(ttl)
				s.wantFree(t)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				without(func() { _ = lease.Release(ctx) })
				if took := time.Since(start); took > 0 {
					t.Errorf("a second Release took %s", took)
				}
			})
		})
	}
}

// Close releases first, and reports later.
func TestRelease_L_hookBlocks_atMostATTL(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(t *testing.T, l *distlock.Locker, lease *distlock.Lease)
		after time.Duration
	}{
		"Release": {func(t *testing.T, _ *distlock.Locker, lease *distlock.Lease) { _ = lease.Release(t.Context()) }, ttl},
		"Close":   {func(t *testing.T, l *distlock.Locker, _ *distlock.Lease) { _ = l.Close(t.Context()) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				never := make(chan struct{})
				l := s.locker(t, distlock.Options{Observer: atStart(distlock.OpRelease, func() { <-never })})
				lease := mustAcquire(t, l)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					c.end(t, l, lease)
				}()
				synctest.Wait()
				if err := lease.Err(); !errors.Is(err, distlock.ErrNotHeld) {
					t.Errorf("while the hook blocks: %v, want ErrNotHeld", err)
				}
				time.Sleep(c.after)
				s.wantFree(t)
				close(never)
				<-ended
			})
		})
	}
}

// The work was done in time. That the lock ran out while the hook blocked is no loss.
func TestDo_hookOutlastsTTL_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{Observer: atStart(distlock.OpRelease, func() { time.Sleep(2 * ttl) })})
		if err := l.Do(t.Context(), key, func(context.Context) error { return nil }); err != nil {
			t.Errorf("Do: %v", err)
		}
	})
}

// The process's own waiters do not wait for the hook either, whether the backend keeps a queue or not.
func TestRelease_L_hookBlocks_waitersGoOn(t *testing.T) {
	for name, queue := range map[string]bool{"queue": true, "no queue": false} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				never := make(chan struct{})
				opts := distlock.Options{TTL: ttl, Wait: -1, Observer: atStart(distlock.OpRelease, func() { <-never })}
				l := open(t, s.Faults, opts)
				if !queue {
					l = open(t, mute{s.Faults}, opts)
				}
				lease := mustAcquire(t, l)
				time.Sleep(100 * time.Millisecond) // longer than the window of a local handoff
				released := make(chan struct{})
				go func() {
					defer close(released)
					_ = lease.Release(t.Context())
				}()
				time.Sleep(time.Millisecond)
				start := time.Now()
				next, err := l.Acquire(t.Context(), key, distlock.WithWait(time.Minute))
				if took := time.Since(start); err != nil || took > ttl {
					t.Errorf("the next holder waited for %s: %v", took, err)
				}
				close(never)
				<-released
				if next != nil {
					mustRelease(t, next)
				}
			})
		})
	}
}

func TestAcquire_L_hookPanics_leaseIsReturned(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{Observer: atEnd(distlock.OpAcquire, func() { panic("hook") })})
		var lease *distlock.Lease
		without(func() { lease, _ = l.Acquire(t.Context(), key) })
		if lease != nil {
			mustRelease(t, lease)
		}
		time.Sleep(time.Hour)
		s.wantFree(t)
		if lease == nil {
			t.Error("the lease was not returned")
		}
	})
}

func TestObserver_nilContext_countsAsCtx(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		none := func(context.Context, *distlock.Operation) context.Context { return nil }
		l := s.locker(t, distlock.Options{Observer: hooks{start: none}})
		var err error
		without(func() {
			err = errors.New("panicked")
			err = l.Do(t.Context(), key, func(context.Context) error { return nil })
		})
		if err != nil {
			t.Errorf("Do: %v", err)
		}
	})
}

// An End without the context of its Start could end the caller's span: that of an operation around it.
func TestObserver_startPanics_noEnd(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var ends []string
		panics := atStart(distlock.OpAcquire, func() { panic("hook") })
		l := s.locker(t, distlock.Options{Observer: hooks{
			start: panics.start,
			end:   func(op *distlock.Operation) { ends = append(ends, op.Name) },
		}})
		observer, turn := fencing.Options(l).Observer, &distlock.Operation{Name: "turn"}
		ctx := observer.Start(t.Context(), turn)
		if err := l.Do(ctx, key, func(context.Context) error { return nil }); err != nil {
			t.Errorf("Do: %v", err)
		}
		observer.End(ctx, turn)
		if want := []string{distlock.OpRelease, "turn"}; !slices.Equal(ends, want) {
			t.Errorf("%q have ended, want %q", ends, want)
		}
	})
}

func TestObserver_panics_areLogged(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var log bytes.Buffer
		l := s.locker(t, distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Observer: atEnd(distlock.OpRelease, func() { panic("cannot export " + key) })})
		for range 3 {
			lease := mustAcquire(t, l)
			without(func() { mustRelease(t, lease) })
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "panicked"); n != 3 || strings.Contains(log.String(), key) {
			t.Errorf("%d lines, want 3 without the key: %s", n, log.String())
		}
	})
}

func TestObserver_seesRenewalsAndLossesLater(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var seen []distlock.Operation
		var stalled bool
		start := time.Now()
		l := s.locker(t, distlock.Options{Observer: hooks{end: func(op *distlock.Operation) {
			if op.Scheduled || op.Name == distlock.OpLost {
				seen = append(seen, *op)
				if !stalled {
					stalled = true
					time.Sleep(time.Hour)
				}
			}
		}}})
		lease := mustAcquire(t, l)
		s.Inject(on(drivertest.Extend, drivertest.Fault{HoldAfter: in(ttl/3 + 100*time.Millisecond)}))
		time.Sleep(ttl / 2)
		s.steal(t)
		<-lease.Context().Done()
		lost := time.Now()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(seen) != 3 {
			t.Fatalf("%+v, want two renewals and a loss", seen)
		}
		first, loss := seen[0], seen[1]
		if !first.Began.Equal(start.Add(ttl/3)) || first.Wait != 100*time.Millisecond || first.Err != nil {
			t.Errorf("the renewal: %+v", first)
		}
		if loss.Name != distlock.OpLost || !loss.Began.Equal(lost) || loss.Held != lost.Sub(start) {
			t.Errorf("the loss: %+v", loss)
		}
	})
}

func TestClose_waitsForReportsForASecond(t *testing.T) {
	for name, c := range map[string]struct{ blocks, waits time.Duration }{
		"slow":    {900 * time.Millisecond, 900 * time.Millisecond},
		"blocked": {10 * time.Minute, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{Observer: atEnd(distlock.OpRelease, func() { time.Sleep(c.blocks) })})
				mustAcquire(t, l)
				start := time.Now()
				mustClose(t, l)
				if took := time.Since(start); took != c.waits {
					t.Errorf("Close took %s, want %s", took, c.waits)
				}
				s.wantFree(t)
				time.Sleep(c.blocks)
			})
		})
	}
}

func TestReports_hookBlocks_noLossDropped(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		const n = 6_000
		var log bytes.Buffer
		never := make(chan struct{})
		var losses atomic.Int32
		l := s.locker(t, distlock.Options{RenewEvery: -1, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Observer: atEnd(distlock.OpLost, func() { losses.Add(1); <-never })})
		leases := acquireTogether(t, l, n)
		time.Sleep(ttl)
		for i, lease := range leases {
			if context.Cause(lease.Context()) != distlock.ErrLost {
				t.Errorf("lease %d was not ended by the loss", i)
				break
			}
		}
		for i := range 100 { // more than may wait
			fencing.Options(l).Logger.Info(fmt.Sprint("line ", i))
		}
		close(never)
		synctest.Wait()
		if losses.Load() != n {
			t.Errorf("%d losses reported of %d", losses.Load(), n)
		}
		if !strings.Contains(log.String(), "dropped=100") {
			t.Errorf("the log does not say that 100 lines were dropped: %s", &log)
		}
	})
}

// A failed renewal is one line, with its cause, also if its answer comes after its patience.
func TestRenewals_failed_oneLineEach(t *testing.T) {
	for name, late := range map[string]bool{"refused": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				logger, count := logged()
				l := s.locker(t, distlock.Options{TTL: 30 * time.Second, Logger: logger})
				lease := mustAcquire(t, l)
				fault := drivertest.Fault{Before: errTurnedAway}
				if late {
					fault = drivertest.Fault{After: errTurnedAway, HoldAfter: in(16 * time.Second)}
				}
				s.Inject(nth(drivertest.Extend, 0, fault))
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := count("a renewal failed"); n != 1 || lease.Err() != nil {
					t.Errorf("%d lines, want 1; the lease: %v", n, lease.Err())
				}
			})
		})
	}
}
