package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
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

// want fails the test unless these are all outcomes since the last look.
func (r *recorder) want(outcomes ...string) {
	r.t.Helper()
	wantList(r.t, r.outcomes(), outcomes...)
}

// all returns the operations that have ended.
func (r *recorder) all() []distlock.Operation {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

func TestObserver_wait_fromCallToEnd(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		const took = 100 * time.Millisecond
		seen := &recorder{t: t}
		l := s.locker(t, seenBy(seen), unrenewed)
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldAfter: in(took)} }) // each
		lease := mustAcquire(t, l)
		wantErr(t, lease.Extend(t.Context(), ttl), nil)
		wantErr(t, fencing.RaiseToken(t.Context(), lease, lease.Fence()), nil)
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
		l := s.locker(t, seenBy(seen), withWait(time.Second))
		lease := mustAcquire(t, l)
		seen.want("distlock.acquire acquired")
		_, _ = l.TryAcquire(t.Context(), key)
		seen.want("distlock.acquire busy")
		_, _ = l.Acquire(t.Context(), key, distlock.WithWait(100*time.Millisecond))
		seen.want("distlock.acquire timeout")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, _ = l.Acquire(ctx, key)
		seen.want("distlock.acquire cancelled")
		_ = lease.Extend(t.Context(), ttl)
		seen.want("distlock.extend done")
		time.Sleep(ttl / 2)
		seen.want("distlock.extend done") // a renewal
		mustRelease(t, lease)
		seen.want("distlock.release done")

		lost := mustAcquire(t, l)
		s.steal(t)
		_ = lost.Extend(t.Context(), ttl)
		synctest.Wait()
		ends := seen.outcomes()
		slices.Sort(ends) // that of the loss is reported in the background
		wantList(t, ends, "distlock.acquire acquired", "distlock.extend lost", "distlock.lost lost")
		s.Inject(cutOff(errBroken))
		_, _ = l.Acquire(t.Context(), key)
		seen.want("distlock.acquire unavailable")
	})
}

// One waiter of a process asks the service. The others know the holder from it.
// A waiter that takes the turn to ask knows the holder that was in its way before.
func TestObserver_nextContender_knowsTheHolder(t *testing.T) {
	each(t, map[string]bool{"a queue": false, "no queue": true}, func(t *testing.T, s *service, unordered bool) {
		var d driver.Driver = s.Faults
		if unordered {
			d = mute{d}
		}
		seen := &recorder{t: t}
		l := open(t, d, seenBy(seen))
		holder := mustAcquire(t, l)
		// A waiter with a TTL of its own has no local handoff.
		waiter := async(func() error { return second(l.Acquire(t.Context(), key, distlock.WithTTL(time.Second))) })
		synctest.Wait()
		mustRelease(t, holder)
		must(t, <-waiter)
		for _, op := range seen.ended {
			if op.TTL == time.Second && op.Blocker["number"] != "1" {
				t.Errorf("%s: blocked by %v", op.Outcome, op.Blocker)
			}
		}
	})
	t.Run("no answer", func(t *testing.T) {
		inService(t, func(t *testing.T, s *service) {
			mustAcquire(t, s.twin().locker(t), fencing.ForWork("one"))
			l, q := s.locker(t), newQueue(t)
			q.join(l, "first", 0)
			s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: in(time.Hour)}))
			time.AfterFunc(100*time.Millisecond, func() { q.leave("first") })
			_, err := l.Acquire(t.Context(), key, fencing.ForWork("one"), distlock.WithWait(200*time.Millisecond))
			if !wantBusy(t, err).SameID {
				t.Errorf("Acquire: %v, want SameID", err)
			}
		})
	})
}

func TestObserver_waitersGiveUp_knowTheHolder(t *testing.T) {
	each(t, map[string]bool{
		"held by this process": true, "held by another process": false,
	}, func(t *testing.T, s *service, sameProcess bool) {
		seen := &recorder{t: t}
		waiting := s.locker(t, seenBy(seen))
		holder := waiting
		if !sameProcess {
			holder = s.locker(t, seenBy(&recorder{t: t}))
		}
		first := mustAcquire(t, holder)
		var waiters sync.WaitGroup
		for i := range 3 { // the first waiter, which asks the service, gives up last
			waiters.Go(func() {
				ctx := ctxFor(t, time.Duration(3-i)*time.Second)
				wantErr(t, second(waiting.Acquire(ctx, key)), distlock.ErrNotAcquired)
			})
			synctest.Wait()
		}
		waiters.Wait()
		mustRelease(t, first)
		gaveUp := slices.DeleteFunc(seen.all(), func(op distlock.Operation) bool { return op.Outcome != distlock.OutcomeTimeout })
		for _, op := range gaveUp {
			if op.Blocker["number"] != "1" {
				t.Errorf("with %d requests, blocked by %v", op.Attempts, op.Blocker)
			}
		}
		if len(gaveUp) != 3 {
			t.Errorf("%d waiters gave up, want 3", len(gaveUp))
		}
	})
}

func TestObserver_seesOutcomes(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		l := s.locker(t, seenBy(seen))
		first := mustAcquire(t, l)
		time.AfterFunc(time.Second, func() { mustRelease(t, first) })
		mustAcquire(t, l)
		ended := seen.all()
		slices.SortStableFunc(ended, func(a, b distlock.Operation) int { return strings.Compare(b.Name, a.Name) })
		release, acquire := ended[0], ended[len(ended)-1] // perhaps a renewal between them
		if release.Held != time.Second || release.Key != key || release.Fence != first.Fence() {
			t.Errorf("release %+v", release)
		}
		if acquire.Wait < time.Second || acquire.Attempts < 1 || acquire.Attempts != s.Calls(drivertest.Acquire)-1 ||
			acquire.Handoff != distlock.HandoffRemote || acquire.TTL != ttl || acquire.Backend != "memory" ||
			acquire.Blocker["number"] != "1" {
			t.Errorf("acquire %+v", acquire)
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
		if got := distlock.OutcomeOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// The work of a call stands beside the metadata of its Observer, and a call for the same work learns of it.
func TestAcquire_work_besideMetadata(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		holder, other := s.locker(t, seenBy(seen)), s.locker(t, seenBy(seen))
		lease := mustAcquire(t, holder, fencing.ForWork("one"))
		for work, same := range map[string]bool{"one": true, "two": false} {
			_, err := other.TryAcquire(t.Context(), key, fencing.ForWork(work))
			if busy := wantBusy(t, err); busy.SameID != same {
				t.Errorf("for %s: %+v", work, busy)
			}
			_, err = other.TryAcquire(t.Context(), key)
			if busy := wantBusy(t, err); busy.SameID {
				t.Errorf("for no work: %+v", busy)
			}
		}
		mustRelease(t, lease)
		for _, op := range seen.ended {
			if op.Err != nil && op.Blocker["number"] != "1" {
				t.Errorf("blocked by %v", op.Blocker)
			}
		}
	})
}

// named is an Observer that notes its calls, checks the context of End, and panics on demand.
type named struct {
	name   string
	calls  *[]string
	panics string
}

type namedKey string

func (n named) Start(ctx context.Context, op *distlock.Operation) context.Context {
	n.note("start")
	return context.WithValue(ctx, namedKey("started"), n.name)
}

func (n named) End(ctx context.Context, op *distlock.Operation) {
	if ctx.Value(namedKey("started")) != n.name {
		panic("End with the context of another Observer")
	}
	n.note("end")
}

func (n named) note(call string) {
	*n.calls = append(*n.calls, call+" "+n.name)
	if n.panics == call {
		panic("on demand")
	}
}

func TestObservers_callsEachWithItsContext(t *testing.T) {
	type row struct {
		panics string
		want   []string
	}
	each(t, map[string]row{
		"":      {"", []string{"start a", "start b", "start c", "end c", "end b", "end a"}},
		"start": {"start", []string{"start a", "start b", "start c", "end c", "end a"}},
		"end":   {"end", []string{"start a", "start b", "start c", "end c", "end b", "end a"}},
	}, func(t *testing.T, s *service, c row) {
		var calls []string
		inner := distlock.Observers(named{"b", &calls, c.panics}, nil)
		l := s.locker(t, seenBy(distlock.Observers(named{"a", &calls, ""}, inner, named{"c", &calls, ""})))
		lease := mustAcquire(t, l)
		wantList(t, calls, c.want...)
		mustRelease(t, lease)
		if len(calls) != 2*len(c.want) {
			t.Errorf("called were %q", calls)
		}
	})
}

// An Observer that wraps others keeps their contexts apart, also without a Locker.
func TestObservers_nestedKeepTheirContexts(t *testing.T) {
	var calls []string
	nested := distlock.Observers(wrapper{distlock.Observers(named{"a", &calls, ""})}, named{"b", &calls, ""})
	op := &distlock.Operation{Began: time.Now()}
	nested.End(nested.Start(t.Context(), op), op)
	wantList(t, calls, "start a", "start b", "end b", "end a")
}

// wrapper hides the type of an Observer.
type wrapper struct{ distlock.Observer }

// An Observer that is off is not called.
func TestObservers_leaveOutTheDisabled(t *testing.T) {
	var calls []string
	off := disabled{named{"off", &calls, ""}, false}
	joined := distlock.Observers(off, disabled{named{"on", &calls, ""}, true}, distlock.Observers(off))
	op := &distlock.Operation{}
	joined.End(joined.Start(t.Context(), op), op)
	wantList(t, calls, "start on", "end on")
}

type disabled struct {
	distlock.Observer
	on bool
}

func (d disabled) Enabled() bool { return d.on }
