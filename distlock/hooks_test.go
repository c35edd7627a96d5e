package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
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
	each(t, map[string]func(slow func()) distlock.Observer{
		"Start": func(slow func()) distlock.Observer { return atStart(distlock.OpExtend, slow) },
		"End":   func(slow func()) distlock.Observer { return atEnd(distlock.OpExtend, slow) },
	}, func(t *testing.T, s *service, observer func(slow func()) distlock.Observer) {
		var slept atomic.Bool
		slow := func() {
			if slept.CompareAndSwap(false, true) {
				time.Sleep(40 * time.Second)
			}
		}
		leases := acquireTogether(t, s.locker(t, withTTL(30*time.Second), seenBy(observer(slow))), 100)
		time.Sleep(time.Minute)
		wantHeld(t, leases)
	})
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
	each(t, map[string]func(){
		"blocks": func() { time.Sleep(20 * time.Minute) },
		"panics": func() { panic("log") },
	}, func(t *testing.T, s *service, do func()) {
		var lines atomic.Int32
		l := s.locker(t, logTo(slog.New(badLog{do: func() { lines.Add(1); do() }})))
		for range 2 {
			lease := mustAcquire(t, l)
			s.Inject(nth(drivertest.Release, s.Calls(drivertest.Release), drivertest.Fault{Before: errBroken}))
			start := time.Now()
			var err error
			without(func() { err = lease.Release(t.Context()) })
			wantErr(t, err, errBroken)
			wantTook(t, start, 0)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour) // until the log blocks no more
		if n := lines.Load(); n != 2 {
			t.Errorf("%d lines of 2 came to the Handler", n)
		}
	})
}

func TestRelease_L_hookPanics_lockIsFree(t *testing.T) {
	each(t, map[string]distlock.Observer{
		"Start panics": atStart(distlock.OpRelease, func() { panic("hook") }),
		"End panics":   atEnd(distlock.OpRelease, func() { panic("hook") }),
	}, func(t *testing.T, s *service, observer distlock.Observer) {
		lease := mustAcquire(t, s.locker(t, seenBy(observer)))
		without(func() { _ = lease.Release(t.Context()) })
		time.Sleep(ttl)
		s.wantFree(t)
		start := time.Now()
		ctx := ctxFor(t, time.Minute)
		without(func() { _ = lease.Release(ctx) })
		wantTook(t, start, 0)
	})
}

// Close releases first, and reports later.
func TestRelease_L_hookBlocks_atMostATTL(t *testing.T) {
	type row struct {
		end   func(t *testing.T, l *distlock.Locker, lease *distlock.Lease)
		after time.Duration
	}
	each(t, map[string]row{
		"Release": {func(t *testing.T, _ *distlock.Locker, lease *distlock.Lease) { _ = lease.Release(t.Context()) }, ttl},
		"Close":   {func(t *testing.T, l *distlock.Locker, _ *distlock.Lease) { _ = l.Close(t.Context()) }, 0},
	}, func(t *testing.T, s *service, c row) {
		never := make(chan struct{})
		l := s.locker(t, seenBy(atStart(distlock.OpRelease, func() { <-never })))
		lease := mustAcquire(t, l)
		ended := async(func() error { c.end(t, l, lease); return nil })
		synctest.Wait()
		wantErr(t, lease.Err(), distlock.ErrNotHeld)
		time.Sleep(c.after)
		s.wantFree(t)
		close(never)
		<-ended
	})
}

// The work was done in time. That the lock ran out while the hook blocked is no loss.
func TestDo_hookOutlastsTTL_noLoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, seenBy(atStart(distlock.OpRelease, func() { time.Sleep(2 * ttl) })))
		wantErr(t, l.Do(t.Context(), key, nothing), nil)
	})
}

// The process's own waiters do not wait for the hook either, whether the backend keeps a queue or not.
func TestRelease_L_hookBlocks_waitersGoOn(t *testing.T) {
	each(t, map[string]bool{"queue": true, "no queue": false}, func(t *testing.T, s *service, queue bool) {
		never := make(chan struct{})
		var d driver.Driver = mute{s.Faults}
		if queue {
			d = s.Faults
		}
		l := open(t, d, patient, seenBy(atStart(distlock.OpRelease, func() { <-never })))
		lease := mustAcquire(t, l)
		time.Sleep(100 * time.Millisecond) // longer than the window of a local handoff
		released := async(func() error { return lease.Release(t.Context()) })
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
}

func TestAcquire_L_hookPanics_leaseIsReturned(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, seenBy(atEnd(distlock.OpAcquire, func() { panic("hook") })))
		var lease *distlock.Lease
		without(func() { lease, _ = l.Acquire(t.Context(), key) })
		if lease == nil {
			t.Fatal("the lease was not returned")
		}
		mustRelease(t, lease)
		time.Sleep(time.Hour)
		s.wantFree(t)
	})
}

func TestObserver_nilContext_countsAsCtx(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		none := func(context.Context, *distlock.Operation) context.Context { return nil }
		l := s.locker(t, seenBy(hooks{start: none}))
		var err error
		without(func() {
			err = errors.New("panicked")
			err = l.Do(t.Context(), key, nothing)
		})
		wantErr(t, err, nil)
	})
}

// An End without the context of its Start could end the caller's span: that of an operation around it.
func TestObserver_startPanics_noEnd(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var ends []string
		panics := atStart(distlock.OpAcquire, func() { panic("hook") })
		l := s.locker(t, seenBy(hooks{
			start: panics.start,
			end:   func(op *distlock.Operation) { ends = append(ends, op.Name) },
		}))
		observer, turn := fencing.Options(l).Observer, &distlock.Operation{Name: "turn"}
		ctx := observer.Start(t.Context(), turn)
		wantErr(t, l.Do(ctx, key, nothing), nil)
		observer.End(ctx, turn)
		wantList(t, ends, distlock.OpRelease, "turn")
	})
}

func TestObserver_panics_areLogged(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		logger, log := logged()
		l := s.locker(t, logTo(logger), seenBy(atEnd(distlock.OpRelease, func() { panic("cannot export " + key) })))
		for range 3 {
			lease := mustAcquire(t, l)
			without(func() { mustRelease(t, lease) })
		}
		synctest.Wait()
		log.want(t, "panicked", 3)
		log.want(t, key, 0)
	})
}

func TestObserver_seesRenewalsAndLossesLater(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var seen []distlock.Operation
		var stalled bool
		start := time.Now()
		l := s.locker(t, seenBy(hooks{end: func(op *distlock.Operation) {
			if op.Scheduled || op.Name == distlock.OpLost {
				seen = append(seen, *op)
				if !stalled {
					stalled = true
					time.Sleep(time.Hour)
				}
			}
		}}))
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
	type row struct{ blocks, waits time.Duration }
	each(t, map[string]row{
		"slow":    {900 * time.Millisecond, 900 * time.Millisecond},
		"blocked": {10 * time.Minute, time.Second},
	}, func(t *testing.T, s *service, c row) {
		l := s.locker(t, seenBy(atEnd(distlock.OpRelease, func() { time.Sleep(c.blocks) })))
		mustAcquire(t, l)
		start := time.Now()
		mustClose(t, l)
		wantTook(t, start, c.waits)
		s.wantFree(t)
		time.Sleep(c.blocks)
	})
}

func TestReports_hookBlocks_noLossDropped(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		const n = 4_200 // more than maxReports
		logger, log := logged()
		never := make(chan struct{})
		var losses atomic.Int32
		l := s.locker(t, unrenewed, logTo(logger), seenBy(atEnd(distlock.OpLost, func() { losses.Add(1); <-never })))
		leases := acquireTogether(t, l, n)
		time.Sleep(ttl)
		for _, lease := range leases {
			wantCause(t, lease.Context(), distlock.ErrLost)
		}
		for i := range 100 { // more than may wait
			fencing.Options(l).Logger.Info(fmt.Sprint("line ", i))
		}
		close(never)
		synctest.Wait()
		if losses.Load() != n {
			t.Errorf("%d losses reported of %d", losses.Load(), n)
		}
		log.want(t, "dropped=100", 1)
	})
}

// A failed renewal is one line, with its cause, also if its answer comes after its patience.
func TestRenewals_failed_oneLineEach(t *testing.T) {
	each(t, map[string]drivertest.Fault{
		"refused": {Before: errTurnedAway}, "late": {After: errTurnedAway},
	}, func(t *testing.T, s *service, fault drivertest.Fault) {
		logger, log := logged()
		lease := mustAcquire(t, s.locker(t, withTTL(30*time.Second), logTo(logger)))
		if fault.After != nil {
			fault.HoldAfter = in(16 * time.Second)
		}
		s.Inject(nth(drivertest.Extend, 0, fault))
		time.Sleep(time.Minute)
		synctest.Wait()
		log.want(t, "a renewal failed", 1)
		wantErr(t, lease.Err(), nil)
	})
}
