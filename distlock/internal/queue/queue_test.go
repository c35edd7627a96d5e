package queue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "k"

type (
	queues = queue.Queues[string, string, string]
	waiter = queue.Waiter[string, string, string]
	hold   = queue.Grant[string, string, string]
)

// waiting makes queues whose lock the process holds since now, and waiters with these names.
func waiting(overlap, contested bool, names ...string) (*queues, *hold, []*waiter) {
	all := queue.New[string, string, string](overlap)
	h := all.Granted(key, nil, time.Now(), contested, "holder")
	return all, h, join(all, names...)
}

func accepts(yes bool) func(string, time.Duration) bool {
	return func(string, time.Duration) bool { return yes }
}

var always, never = accepts(true), accepts(false)

func join(all *queues, names ...string) (ws []*waiter) {
	for _, name := range names {
		ws = append(ws, all.Join(key, name))
	}
	return ws
}

// wantNext fails the test unless the waiter has received the outcome, or is the contender with the report of
// the one before it. "none" stands for neither.
func wantNext(t *testing.T, w *waiter, want string) {
	t.Helper()
	got := "none"
	select {
	case got = <-w.Result():
	case got = <-w.Ask():
	default:
		if !w.Waited && want == "" {
			return
		}
	}
	if got != want {
		t.Errorf("%s received %q, want %q", w.Caller, got, want)
	}
}

// The last report of a contender, with the place of the process in the backend's queue, is for the
// next contender.
func TestYield_reportIsForTheNextContender(t *testing.T) {
	t.Run("that waits", func(t *testing.T) {
		ws := join(queue.New[string, string, string](true), "a", "b", "c")
		wantNext(t, ws[0], "")
		ws[0].Yield(queue.Own, "", "a's place")
		wantNext(t, ws[1], "a's place")
		ws[1].Yield(queue.Own, "", "b's place")
		wantNext(t, ws[2], "b's place")
	})
	t.Run("not for later callers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, h, ws := waiting(true, false, "a")
			time.Sleep(queue.Window)
			synctest.Wait()
			ws[0].Yield(queue.Own, "", "a's place")
			wantNext(t, all.Join(key, "late"), "holder")
			h.End(false)
		})
	})
	t.Run("not after a grant", func(t *testing.T) {
		all := queue.New[string, string, string](true)
		ws := join(all, "a", "b", "c")
		ws[0].Yield(queue.Own, "", "a's place")
		all.Granted(key, ws[1], time.Now(), false, "held").End(false)
		wantNext(t, ws[2], "held")
	})
	t.Run("not after a handoff", func(t *testing.T) {
		_, h, ws := waiting(true, false, "a", "b")
		h.HandOff(h.Next(time.Now(), always), "handed", "a")
		wantNext(t, ws[0], "handed")
		h.Next(time.Now(), never)
		wantNext(t, ws[1], "a")
	})
}

// A released lock whose release has no answer yet may be granted to this process again.
func TestEnd_olderHoldEndsNothing(t *testing.T) {
	all, older, ws := waiting(true, false, "a", "b")
	if next := older.Next(time.Now(), never); next != nil {
		t.Fatalf("handed off to %s", next.Caller)
	}
	wantNext(t, ws[0], "holder")
	h := all.Granted(key, ws[0], time.Now(), false, "")
	older.End(false)
	older.End(true)
	if next := older.Next(time.Now(), always); next != nil {
		t.Errorf("the older hold handed the lock off to %s", next.Caller)
	}
	wantNext(t, ws[1], "none")
	if next := h.Next(time.Now(), always); next != ws[1] {
		t.Errorf("the hold handed the lock off to %v", next)
	}
}

// Whatever happens in whatever order: every waiter has exactly one outcome, waiters are served in
// the order of their arrival, and there is at most one contender.
func TestQueues_randomOperations(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(t, seed)
				for range 200 {
					r.step()
				}
				r.end()
			})
		})
	}
}

type run struct {
	t         *testing.T
	random    *rand.Rand
	all       *queues
	waiting   []*waiter
	contender *waiter
	hold      *hold
	holds     []*hold // whose releases have no answer yet
	joined    int
	ended     int
}

func newRun(t *testing.T, seed uint64) *run {
	random := rand.New(rand.NewPCG(seed, 17))
	return &run{t: t, random: random, all: queue.New[string, string, string](random.IntN(2) == 0)}
}

func (r *run) step() {
	switch r.random.IntN(10) {
	case 0, 1, 2:
		r.joined++
		r.waiting = append(r.waiting, r.all.Join(key, fmt.Sprint("w", r.joined)))
	case 3:
		if len(r.waiting) > 0 {
			i := r.random.IntN(len(r.waiting))
			r.waiting[i].Leave()
			r.waiting = slices.Delete(r.waiting, i, i+1)
			r.ended++
		}
	case 4:
		time.Sleep(time.Duration(r.random.Int64N(int64(queue.Window))))
	case 5:
		if r.contender != nil {
			w, failure := r.contender, queue.Failure(r.random.IntN(3))
			r.contender = nil
			r.ended++
			w.Yield(failure, "failed", "")
			if failure == queue.Shared {
				r.fail("failed")
			}
		}
	case 6:
		if r.contender != nil && r.hold == nil { // as the backend grants it
			r.hold = r.all.Granted(key, r.contender, time.Now(), r.random.IntN(2) == 0, "holder")
			r.contender = nil
			r.ended++
		}
	case 7, 8:
		r.release()
	case 9:
		if len(r.holds) > 0 {
			r.holds[0].End(false)
			r.holds = r.holds[1:]
		}
		if r.contender != nil {
			r.contender.Answered("busy", r.random.IntN(2) == 0)
		}
	}
	r.settle()
}

// release ends the hold, by a handoff if the queue has one.
func (r *run) release() {
	h := r.hold
	if h == nil {
		return
	}
	if r.random.IntN(4) == 0 { // a loss
		h.End(true)
		r.hold = nil
		return
	}
	w := h.Next(time.Now(), accepts(r.random.IntN(4) > 0))
	if w == nil {
		r.hold, r.holds = nil, append(r.holds, h)
		return
	}
	if w != r.waiting[0] {
		r.t.Fatalf("handed off to %s before %s", w.Caller, r.waiting[0].Caller)
	}
	h.HandOff(w, "handed", "holder")
	if o := <-w.Result(); o != "handed" {
		r.t.Fatalf("%s received %q", w.Caller, o)
	}
	r.waiting = r.waiting[1:]
	r.ended++
}

// settle receives what came. Failures apart, only the first waiter may receive anything.
func (r *run) settle() {
	synctest.Wait()
	if r.contender != nil { // a wake, or nothing
		select {
		case <-r.contender.Ask():
		default:
		}
	}
	failed := 0
	for i, w := range r.waiting {
		contends := !w.Waited
		select {
		case o := <-w.Result():
			if o != "failed" || i != failed {
				r.t.Fatalf("%s received %q before %s", w.Caller, o, r.waiting[0].Caller)
			}
			failed++
			r.ended++
		case <-w.Ask():
			contends = true
		default:
		}
		switch {
		case !contends:
		case i > 0:
			r.t.Fatalf("%s contends before %s", w.Caller, r.waiting[0].Caller)
		case r.contender != nil:
			r.t.Fatalf("%s and %s contend", r.contender.Caller, w.Caller)
		default:
			r.contender = w
		}
	}
	r.waiting = r.waiting[failed:]
	if r.contender != nil && len(r.waiting) > 0 && r.waiting[0] == r.contender {
		r.waiting = r.waiting[1:]
	}
	if r.contender == nil && r.hold == nil && len(r.holds) == 0 && len(r.waiting) > 0 {
		r.t.Fatalf("%d wait for a free lock, and there is no contender", len(r.waiting))
	}
}

// fail checks that all waiters have failed.
func (r *run) fail(want string) {
	for _, w := range r.waiting {
		wantNext(r.t, w, want)
		r.ended++
	}
	r.waiting = nil
}

func (r *run) end() {
	for _, w := range r.waiting {
		w.Leave()
		r.ended++
	}
	if r.contender != nil {
		r.contender.Yield(queue.Own, "", "")
		r.ended++
	}
	if r.ended != r.joined {
		r.t.Errorf("%d outcomes of %d waiters", r.ended, r.joined)
	}
	for _, h := range append(r.holds, r.hold) {
		if h != nil {
			h.End(false)
		}
	}
}
