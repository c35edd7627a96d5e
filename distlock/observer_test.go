package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// recorder is an Observer that checks its own contract: one End for every Start, with the context Start made.
type recorder struct {
	t  *testing.T
	mu sync.Mutex
	n  int
	// ended are the operations, complete, in the order of their ends.
	ended []distlock.Operation
}

type startOf struct{ op *distlock.Operation }

func (r *recorder) Start(ctx context.Context, op *distlock.Operation) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if op.Name == distlock.OpAcquire {
		op.Metadata = map[string]string{"number": fmt.Sprint(r.n)}
	}
	return context.WithValue(ctx, startOf{op}, true)
}

func (r *recorder) End(ctx context.Context, op *distlock.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n--
	if ctx.Value(startOf{op}) != true {
		r.t.Errorf("End of %s without the context of its Start", op.Name)
	}
	r.ended = append(r.ended, *op)
}

func (r *recorder) outcomes() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n != 0 {
		r.t.Errorf("%d operations have not ended", r.n)
	}
	for _, op := range r.ended {
		if op.Err != nil == (op.Outcome == distlock.OutcomeDone || op.Outcome == distlock.OutcomeAcquired) {
			r.t.Errorf("%s: outcome %s with error %v", op.Name, op.Outcome, op.Err)
		}
		list = append(list, op.Name+" "+string(op.Outcome))
	}
	r.ended = nil
	return list
}

func TestObserver_wait_fromCallToEnd(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		const took = 100 * time.Millisecond
		seen := &recorder{t: t}
		l := s.locker(t, distlock.Options{Observer: seen, RenewEvery: -1})
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldAfter: in(took)} })
		lease := mustAcquire(t, l)
		if err := lease.Extend(t.Context(), ttl); err != nil {
			t.Error(err)
		}
		if err := fencing.RaiseToken(t.Context(), lease, lease.Fence()); err != nil {
			t.Error(err)
		}
		mustRelease(t, lease)
		for _, op := range seen.ended {
			if op.Wait != took {
				t.Errorf("%s took %s, want %s", op.Name, op.Wait, took)
			}
		}
		if got := seen.outcomes(); len(got) != 4 {
			t.Errorf("%q", got)
		}
	})
}

func TestObserver_isToldOfEveryOperation(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		l := s.locker(t, distlock.Options{Observer: seen, Wait: time.Second})
		expect := func(what string, want ...string) {
			t.Helper()
			if got := seen.outcomes(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}

		lease := mustAcquire(t, l)
		expect("acquire", "distlock.acquire acquired")
		_, _ = l.TryAcquire(t.Context(), key)
		expect("busy", "distlock.acquire busy")
		_, _ = l.Acquire(t.Context(), key, distlock.WithWait(100*time.Millisecond))
		expect("timeout", "distlock.acquire timeout")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, _ = l.Acquire(ctx, key)
		expect("cancelled", "distlock.acquire cancelled")
		_ = lease.Extend(t.Context(), ttl)
		expect("extend", "distlock.extend done")
		time.Sleep(ttl / 2)
		expect("renewal", "distlock.extend done")
		mustRelease(t, lease)
		expect("release", "distlock.release done")

		lost := mustAcquire(t, l)
		s.steal(t)
		_ = lost.Extend(t.Context(), ttl)
		synctest.Wait()
		ends := seen.outcomes()
		slices.Sort(ends) // that of the loss is reported in the background
		if want := []string{"distlock.acquire acquired", "distlock.extend lost", "distlock.lost lost"}; !slices.Equal(ends,
			want) {
			t.Errorf("lost: %q, want %q", ends, want)
		}

		s.Inject(cutOff(errBroken))
		_, _ = l.Acquire(t.Context(), key)
		expect("unavailable", "distlock.acquire unavailable")
	})
}

// One waiter of a process asks the service. The others know the holder from it.
func TestObserver_waitersGiveUp_knowTheHolder(t *testing.T) {
	for name, sameProcess := range map[string]bool{"held by this process": true, "held by another process": false} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				held, seen := &recorder{t: t}, &recorder{t: t}
				holder := s.locker(t, distlock.Options{Observer: held})
				waiting := holder
				if !sameProcess {
					waiting = s.locker(t, distlock.Options{Observer: seen})
				} else {
					seen = held
				}
				first := mustAcquire(t, holder)
				var waiters sync.WaitGroup
				for i := range 3 { // the first waiter, which asks the service, gives up last
					waiters.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(3-i)*time.Second)
						defer cancel()
						if _, err := waiting.Acquire(ctx, key); !errors.Is(err, distlock.ErrNotAcquired) {
							t.Errorf("Acquire: %v", err)
						}
					})
					synctest.Wait()
				}
				waiters.Wait()
				mustRelease(t, first)
				synctest.Wait()
				seen.mu.Lock()
				defer seen.mu.Unlock()
				gaveUp := 0
				for _, op := range seen.ended {
					if op.Name != distlock.OpAcquire || op.Outcome != distlock.OutcomeTimeout {
						continue
					}
					gaveUp++
					if op.Blocker["number"] != "1" {
						t.Errorf("with %d requests, blocked by %v", op.Attempts, op.Blocker)
					}
				}
				if gaveUp != 3 {
					t.Errorf("%d waiters gave up, want 3", gaveUp)
				}
			})
		})
	}
}

func TestObserver_seesOutcomes(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		l := s.locker(t, distlock.Options{Observer: seen})
		first := mustAcquire(t, l)
		time.AfterFunc(time.Second, func() { mustRelease(t, first) })
		second := mustAcquire(t, l)
		synctest.Wait()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		var release, acquire distlock.Operation
		for _, op := range seen.ended {
			switch {
			case op.Name == distlock.OpRelease:
				release = op
			case op.Fence == second.Fence():
				acquire = op
			}
		}
		if release.Held != time.Second || release.Key != key || release.Fence != first.Fence() {
			t.Errorf("release %+v", release)
		}
		if acquire.Wait < time.Second || acquire.Attempts < 1 || acquire.Attempts != s.Calls(drivertest.Acquire)-1 ||
			acquire.Handoff != distlock.HandoffRemote || acquire.TTL != ttl || acquire.Backend != "memory" {
			t.Errorf("acquire %+v", acquire)
		}
		if acquire.Blocker["number"] != "1" {
			t.Errorf("blocked by %v, want what the first acquire's Start had set", acquire.Blocker)
		}
	})
}

func TestOutcomeOf(t *testing.T) {
	for _, c := range []struct {
		want distlock.Outcome
		err  error
	}{
		{distlock.OutcomeDone, nil},
		{distlock.OutcomeLost, fmt.Errorf("%w: %w", distlock.ErrLost, context.Canceled)},
		{distlock.OutcomeUnavailable, fmt.Errorf("%w: %w", distlock.ErrUnavailable, context.DeadlineExceeded)},
		{distlock.OutcomeRefused, distlock.ErrRefused},
		{distlock.OutcomeUnknown, fmt.Errorf("%w: %w", distlock.ErrOutcomeUnknown, context.Canceled)},
		{distlock.OutcomeCancelled, fmt.Errorf("%w: %w", &distlock.BusyError{}, context.Canceled)},
		{distlock.OutcomeFailed, context.DeadlineExceeded}, // of the work
		{distlock.OutcomeTimeout, fmt.Errorf("%w: %w", &distlock.BusyError{}, context.DeadlineExceeded)},
		{distlock.OutcomeFailed, errors.New("other")},
	} {
		want, err := c.want, c.err
		if got := distlock.OutcomeOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// The work of a call stands beside the metadata of its Observer, and a call for the same work learns of it.
func TestAcquire_work_besideMetadata(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		holder, other := s.locker(t, distlock.Options{Observer: seen}), s.locker(t, distlock.Options{Observer: seen})
		lease, err := holder.Acquire(t.Context(), key, fencing.ForWork("one"))
		if err != nil {
			t.Fatal(err)
		}
		for work, same := range map[string]bool{"one": true, "two": false} {
			_, err := other.TryAcquire(t.Context(), key, fencing.ForWork(work))
			var busy *distlock.BusyError
			if !errors.As(err, &busy) || busy.SameID != same {
				t.Errorf("for %s: %+v, %v", work, busy, err)
			}
			if _, err := other.TryAcquire(t.Context(), key); !errors.As(err, &busy) || busy.SameID {
				t.Errorf("for no work: %+v, %v", busy, err)
			}
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		for _, op := range seen.ended {
			if op.Err != nil && op.Blocker["number"] != "1" {
				t.Errorf("blocked by %v", op.Blocker)
			}
		}
	})
}
