package distlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// A lock that may have been granted is released as soon as the backend answers, before its TTL ends.
func TestCleanUp_isTriedUntilTheServiceAnswers(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			switch {
			case c.Op == drivertest.Acquire:
				return drivertest.Fault{After: errSilence}
			case c.Op == drivertest.Release && c.N < 4:
				return drivertest.Fault{Before: errSilence}
			}
			return drivertest.Fault{}
		})
		wantErr(t, second(l.Acquire(t.Context(), key)), distlock.ErrUnavailable)
		if !s.state(t).Held {
			t.Fatal("the service has no grant that could be left behind")
		}
		time.Sleep(time.Second)
		s.wantFree(t)
		if reply, err := s.Driver().Acquire(t.Context(), s.Granted()); err != nil || reply.Outcome != driver.Cancelled {
			t.Errorf("a copy that arrives now is answered %+v, %v", reply, err)
		}
	})
}

// A grant that an Extend may have prolonged needs a clean-up for as long.
func TestCleanUp_L_afterExtend_lastsAsLong(t *testing.T) {
	type row struct {
		extend drivertest.Fault
		loses  bool
	}
	each(t, map[string]row{
		"released":                           {},
		"lost, the Extend without an answer": {extend: drivertest.Fault{After: errSilence}, loses: true},
	}, func(t *testing.T, s *service, c row) {
		var log bytes.Buffer
		lease := mustAcquire(t, s.locker(t, unrenewed, logTo(slog.New(slog.NewTextHandler(&log, nil)))))
		s.Inject(on(drivertest.Extend, c.extend))
		_ = lease.Extend(t.Context(), 10*time.Minute)
		s.Inject(always(drivertest.Release, errSilence))
		if c.loses {
			<-lease.Context().Done()
		} else {
			_ = lease.Release(t.Context())
		}
		time.Sleep(5 * time.Minute)
		s.Inject(nil)
		time.Sleep(2 * time.Second)
		s.wantFree(t)
		if !c.loses && !bytes.Contains(log.Bytes(), []byte("ttl_ms=600000")) {
			t.Errorf("logged: %s", log.String())
		}
	})
}

// After a definite refusal there is nothing to release.
func TestCleanUp_isNotForAClearRefusal(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		mustAcquire(t, s.twin().locker(t))
		l := s.locker(t)
		wantErr(t, second(l.TryAcquire(t.Context(), key)), distlock.ErrNotAcquired)
		for key, refusal := range map[string]error{"foreign": driver.ErrForeign,
			"no memory": errors.Join(driver.ErrRefused, driver.ErrNotDone)} {
			s.Inject(always(drivertest.Acquire, refusal))
			_, err := l.TryAcquire(t.Context(), key)
			wantErr(t, err, refusal)
			wantErr(t, err, distlock.ErrRefused)
		}
		s.Inject(nil)
		synctest.Wait()
		s.wantCalls(t, drivertest.Release, 0)
	})
}

// The caller has left, and neither the mark nor the answer alone would do.
func TestCleanUp_grantAfterItsCallerLeft(t *testing.T) {
	each(t, map[string]error{"with an answer that is lost": errSilence, "in time, with the answer too late": nil},
		func(t *testing.T, s *service, lost error) {
			s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldAfter: in(time.Second), After: lost}))
			wantErr(t, second(s.locker(t).Acquire(ctxFor(t, time.Millisecond), key)), context.DeadlineExceeded)
			time.Sleep(time.Second)
			synctest.Wait()
			s.wantFree(t)
			if s.Granted().Owner == "" {
				t.Error("there was no grant")
			}
		})
}

// A packet can be held on its way for longer than a short TTL, and its caller be gone.
func TestCleanUp_S1_heldAcquireGrantsNothing(t *testing.T) {
	each(t, map[string]time.Duration{
		"cleaned up at once": 0, "cleaned up after an outage": 15 * time.Second,
	}, func(t *testing.T, s *service, outage time.Duration) {
		l := s.locker(t, withTTL(time.Second))
		held, back := in(20*time.Second), time.Now().Add(outage)
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			switch {
			case c.Op == drivertest.Acquire:
				return drivertest.Fault{HoldBefore: held}
			case time.Now().Before(back):
				return drivertest.Fault{Before: errSilence}
			}
			return drivertest.Fault{}
		})
		wantErr(t, second(l.Acquire(ctxFor(t, time.Millisecond), key)), context.DeadlineExceeded)
		time.Sleep(21 * time.Second)
		if got := s.Granted(); got.Owner != "" {
			t.Errorf("the lock was granted to %q, which has no holder", got.Owner)
		}
	})
}

// After the loss of all leases at once, the clean-up does not take all connections of the backend.
func TestCleanUp_ofManyIsNoStorm(t *testing.T) {
	const leases = 200
	inService(t, func(t *testing.T, s *service) {
		var under, most atomic.Int32
		s.OnRelease = func(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			time.Sleep(time.Millisecond)
			return s.Driver().Release(ctx, req)
		}
		acquireTogether(t, s.locker(t), leases)
		s.Inject(always(drivertest.Extend, errSilence))
		time.Sleep(ttl + leases*time.Millisecond) // all are lost, and cleaned up
		s.wantCalls(t, drivertest.Release, leases)
		if n := most.Load(); n > 16 {
			t.Errorf("%d clean-ups at a time", n)
		}
	})
}

// What waits for another try is tried at once when the Locker closes.
func TestClose_hurriesCleanUps(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, withTTL(time.Minute))
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Acquire {
				return drivertest.Fault{After: errSilence}
			}
			return drivertest.Fault{Before: errSilence}
		})
		_, _ = l.Acquire(t.Context(), key)
		time.Sleep(5*time.Second + 300*time.Millisecond)
		s.Inject(nil)
		start := time.Now()
		mustClose(t, l)
		wantTook(t, start, 0)
		s.wantFree(t)
	})
}

// But not the clean-up after a loss: the cancelled work keeps its margin.
func TestClose_N_leavesTheMarginOfALoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.locker(t, withTTL(30*time.Second), unrenewed), s.locker(t)
		lease := mustAcquire(t, l)
		<-lease.Context().Done()
		synctest.Wait() // the clean-up waits
		go mustClose(t, l)
		time.Sleep(200 * time.Millisecond) // rolling back
		wantErr(t, second(other.TryAcquire(t.Context(), key)), distlock.ErrNotAcquired)
	})
}

// hang has the service answer no release of a sick lock, and renew none, until ctx ends. It returns how long
// the releases were given, by owner, and a function that ends that.
func (s *service) hang(sick func(driver.Name) bool) (given func() map[string][]time.Duration, heal func()) {
	var mu sync.Mutex
	times := map[string][]time.Duration{}
	s.Change(func() {
		s.OnRelease = func(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
			deadline, _ := ctx.Deadline()
			mu.Lock()
			times[req.Owner] = append(times[req.Owner], time.Until(deadline))
			mu.Unlock()
			if sick(req.Name) {
				<-ctx.Done()
			}
			return s.Driver().Release(ctx, req)
		}
		s.OnExtend = func(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
			for _, req := range reqs {
				if sick(req.Name) {
					<-ctx.Done()
					return distlock.Replies(reqs, driver.ExtendReply{Err: ctx.Err()})
				}
			}
			return s.Driver().Extend(ctx, reqs)
		}
	})
	given = func() map[string][]time.Duration { mu.Lock(); defer mu.Unlock(); return maps.Clone(times) }
	return given, func() { s.Change(func() { s.OnRelease, s.OnExtend = nil, nil }) }
}

func every(driver.Name) bool { return true }

func TestClose_backendHangs_noWaitForCleanUps(t *testing.T) {
	each(t, map[string]int{"1": 1, "200": 200}, func(t *testing.T, s *service, leases int) {
		l := s.locker(t)
		acquireTogether(t, l, leases)
		s.hang(every)
		time.Sleep(2 * ttl) // all are lost
		start := time.Now()
		mustClose(t, l)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %s", took)
		}
	})
}

// In a Cluster one node may hang while the others are well.
func TestCleanUp_doesNotWaitForANodeThatHangs(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		acquireTogether(t, l, 10)
		s.hang(func(name driver.Name) bool { return name.Key != key })
		time.Sleep(ttl)
		s.Inject(after(drivertest.Acquire, errSilence))
		wantErr(t, second(l.Acquire(t.Context(), key)), distlock.ErrUnavailable)
		if s.Granted().Name.Key != key {
			t.Error("there was no grant")
		}
		time.Sleep(time.Second)
		s.wantFree(t)
	})
}

// A service that is away leaves jobs for two minutes. Close still does them.
func TestCleanUp_C_manyUnknownAcquires_fewGoroutines(t *testing.T) {
	const calls = 2000
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		before := runtime.NumGoroutine()
		_, heal := s.hang(every)
		s.Inject(after(drivertest.Acquire, errSilence))
		for i := range calls {
			wantErr(t, second(l.Acquire(t.Context(), fmt.Sprint(i))), distlock.ErrUnavailable)
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 50 {
			t.Errorf("%d goroutines for %d calls", n, calls)
		}
		heal()
		mustClose(t, l)
		for i := range calls {
			name := driver.Name{Namespace: "distlock", Key: fmt.Sprint(i)}
			if state, _ := s.Driver().Inspect(t.Context(), name); state.Held {
				t.Fatalf("lock %d stands", i)
			}
		}
	})
}

// However long a service is away, each try has its time, and the next one comes soon.
func TestCleanUp_outlastsALongOutage(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, withTTL(time.Hour))
		given, heal := s.hang(every)
		s.Inject(after(drivertest.Acquire, errSilence))
		_, _ = l.Acquire(t.Context(), key)
		time.Sleep(10 * time.Minute)
		heal()
		time.Sleep(3 * time.Second)
		s.wantFree(t)
		tries := given()[s.Granted().Owner]
		for i, got := range tries {
			if want := min(250*time.Millisecond<<min(i, 2), time.Second); got != want {
				t.Errorf("try %d had %s, want %s", i, got, want)
			}
		}
		if n := len(tries); n < 200 || n > 600 {
			t.Errorf("%d tries in 10 minutes", n)
		}
	})
}

// Each of many clean-ups has a first try. No try comes after two minutes.
func TestCleanUp_ofManyEndsInTwoMinutes(t *testing.T) {
	const leases = 300 // the first tries take 4.7 s
	inService(t, func(t *testing.T, s *service) {
		acquireTogether(t, s.locker(t), leases)
		given, _ := s.hang(every)
		time.Sleep(3 * ttl) // all were lost after one
		if tried := len(given()); tried != leases {
			t.Errorf("%d of %d were tried", tried, leases)
		}
		time.Sleep(2 * time.Minute)
		before := s.Calls(drivertest.Release)
		time.Sleep(time.Minute)
		s.wantCalls(t, drivertest.Release, before)
	})
}
