package queue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/queue"
)

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

// Many goroutines take the lock and leave at random. The backend of this test grants to one
// contender at a time. The clock of the bubble moves when all other goroutines wait, so some of
// them wait in the queue when a holder that has slept releases the lock.
func TestQueues_concurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := queue.New[string, string, string](true)
		var (
			wg      sync.WaitGroup
			backend = make(chan struct{}, 1) // the lock itself
			current *hold                    // guarded by backend
			inside  atomic.Int32
			grants  atomic.Int32
			handed  atomic.Int32
		)
		for g := range 16 {
			random := rand.New(rand.NewPCG(uint64(g), 4))
			wg.Go(func() {
				for range 400 {
					w := all.Join(key, "w")
					var o string
					switch {
					case !w.Waited:
					case random.IntN(3) > 0:
						select {
						case o = <-w.Result():
						case <-w.Ask():
						}
					default:
						if o, _ = w.Leave(); o != "handed" {
							continue
						}
					}
					if o != "handed" {
						backend <- struct{}{}
						current = all.Granted(key, w, time.Now(), random.IntN(2) == 0, "holder")
						grants.Add(1)
					} else {
						handed.Add(1)
					}
					if inside.Add(1) != 1 {
						t.Error("two holders")
					}
					if random.IntN(4) == 0 {
						time.Sleep(time.Microsecond)
					}
					h := current
					inside.Add(-1)
					if next := h.Next(time.Now(), accepts(random.IntN(5) > 0)); next != nil {
						h.HandOff(next, "handed", "holder")
						continue
					}
					<-backend
					h.End(false)
				}
			})
		}
		wg.Wait()
		waiters := 0
		all.Each(key, func(string) { waiters++ })
		if waiters != 0 || grants.Load() == 0 || handed.Load() == 0 {
			t.Errorf("%d waiters are left; %d grants, %d handoffs", waiters, grants.Load(), handed.Load())
		}
	})
}
