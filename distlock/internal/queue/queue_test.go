package queue_test

import (
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

func TestJoin_emptyQueueMakesTheContender(t *testing.T) {
	all := queue.New[string, string, string](true)
	ws := join(all, "a", "b")
	wantNext(t, ws[0], "")
	wantNext(t, ws[1], "none")
	if ws[0].Waited || !ws[1].Waited {
		t.Errorf("waited: %t, %t, want the second alone", ws[0].Waited, ws[1].Waited)
	}
}

func TestQueues_keysAreIndependent(t *testing.T) {
	all := queue.New[string, string, string](true)
	wantNext(t, all.Join("k1", "a"), "")
	wantNext(t, all.Join("k2", "b"), "")
}

// The table of Release: the first waiter is handed the lock, becomes the contender, or gets
// nothing.
func TestRelease_policy(t *testing.T) {
	const late = queue.Window
	for name, c := range map[string]struct {
		age       time.Duration
		forbidden bool
		overlap   bool // the backend keeps a queue
		contested bool // other processes wait
		known     bool // the waiter was there at the grant
		handed    bool
		contends  bool
	}{
		"soon after the grant":                      {handed: true},
		"at the end of the window":                  {age: late - 1, handed: true},
		"after the window":                          {age: late},
		"after the window, with a queue":            {age: late, overlap: true, contends: true},
		"the holder forbids it":                     {forbidden: true},
		"the holder forbids it, with a queue":       {forbidden: true, overlap: true, contends: true},
		"contested, by a known waiter":              {overlap: true, contested: true, known: true, handed: true},
		"contested, by a later waiter":              {overlap: true, contested: true},
		"contested and forbidden":                   {overlap: true, contested: true, known: true, forbidden: true},
		"contested, without a queue, known waiter":  {contested: true, known: true, handed: true},
		"contested, without a queue, later waiters": {contested: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := queue.New[string, string, string](c.overlap)
				first := all.Join(key, "first")
				wantNext(t, first, "")
				var w *waiter
				if c.known {
					w = all.Join(key, "w")
				}
				h := all.Granted(key, first, time.Now(), c.contested, "holder")
				if !c.known {
					w = all.Join(key, "w")
				}
				// The age is that of the release. The window of the contender ends by the real
				// clock.
				next := h.Next(time.Now().Add(c.age), accepts(!c.forbidden))
				if (next == w) != c.handed || next != w && next != nil {
					t.Errorf("handed off to %v, want a handoff: %t", next, c.handed)
				}
				if c.contends {
					wantNext(t, w, "")
				}
				wantNext(t, w, "none")
				h.End(false)
			})
		})
	}
}

func TestHandOff_keepsOrderAndWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, ws := waiting(true, false, "a", "b", "c")
		for i, w := range ws[:2] {
			time.Sleep(4 * time.Millisecond)
			if next := h.Next(time.Now(), always); next != w {
				t.Fatalf("handoff %d went to %v, want %s", i, next, w.Caller)
			}
			h.HandOff(w, "handed", "held by "+w.Caller)
			wantNext(t, w, "handed")
		}
		if o, last := ws[2].Leave(); o != "" || last != "held by b" {
			t.Errorf("Leave: %q, %q", o, last)
		}
	})
}

// While other processes wait, each waiter known at the grant is handed the lock once.
func TestHandOff_contestedServesKnownOnce(t *testing.T) {
	all := queue.New[string, string, string](true)
	ws := join(all, "holder", "a", "b")
	h := all.Granted(key, ws[0], time.Now(), true, "")
	again := all.Join(key, "a again")
	for _, w := range ws[1:] {
		if next := h.Next(time.Now(), always); next != w {
			t.Fatalf("handoff to %v, want %s", next, w.Caller)
		}
		h.HandOff(w, "handed", "")
	}
	if next := h.Next(time.Now(), always); next != nil {
		t.Errorf("a second handoff to %s", next.Caller)
	}
	wantNext(t, again, "none")
	h.End(false)
	wantNext(t, again, "")
}

func TestWindow_endPromotesTheFirstWaiter(t *testing.T) {
	for name, overlap := range map[string]bool{"the backend queues": true, "the backend does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, h, ws := waiting(overlap, false, "a", "b")
				time.Sleep(queue.Window - 1)
				synctest.Wait()
				wantNext(t, ws[0], "none")
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				wantNext(t, ws[0], map[bool]string{true: "", false: "none"}[overlap])
				wantNext(t, ws[1], "none")
				h.End(false)
				time.Sleep(time.Second)
				synctest.Wait()
				wantNext(t, ws[1], "none")
			})
		})
	}
}

func TestYield_failuresAreShared(t *testing.T) {
	type yields []queue.Failure
	for name, c := range map[string]struct {
		yields yields
		failed bool // the waiters behind the last contender
		answer bool // of the backend to the last contender
	}{
		"its own":                {yields: yields{queue.Own}},
		"three of their own":     {yields: yields{queue.Own, queue.Own, queue.Own}},
		"one silence":            {yields: yields{queue.Repeated}},
		"two silences":           {yields: yields{queue.Repeated, queue.Repeated}, failed: true},
		"a silence around a ctx": {yields: yields{queue.Repeated, queue.Own, queue.Repeated}, failed: true},
		"an answer between them": {yields: yields{queue.Repeated, queue.Repeated}, answer: true},
		"a rejection":            {yields: yields{queue.Shared}, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			all := queue.New[string, string, string](true)
			ws := join(all, "a", "b", "c", "d", "e")
			n := len(c.yields)
			for i, failure := range c.yields {
				wantNext(t, ws[i], "")
				if c.answer && i == n-1 {
					ws[i].Answered("", false)
				}
				ws[i].Yield(failure, "failed", "")
			}
			for i, w := range ws[n:] {
				switch {
				case c.failed:
					wantNext(t, w, "failed")
				case i == 0:
					wantNext(t, w, "")
				default:
					wantNext(t, w, "none")
				}
			}
			if c.failed {
				wantNext(t, all.Join(key, "later"), "") // the queue is as new
			}
		})
	}
}

func TestYield_grantEndsTheCountOfFailures(t *testing.T) {
	all := queue.New[string, string, string](true)
	ws := join(all, "a", "b", "c", "d")
	ws[0].Yield(queue.Repeated, "failed", "")
	all.Granted(key, ws[1], time.Now(), false, "").End(false)
	ws[2].Yield(queue.Repeated, "failed", "")
	wantNext(t, ws[3], "")
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
			wantNext(t, all.Join(key, "late"), "")
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
}

// A waiter that leaves learns why it has waited.
func TestLeave_returnsTheLastReport(t *testing.T) {
	all := queue.New[string, string, string](true)
	ws := join(all, "a", "b", "c", "d")
	wantLeft := func(w *waiter, report string) {
		t.Helper()
		if o, last := w.Leave(); o != "" || last != report {
			t.Errorf("%s: %q, %q, want %q", w.Caller, o, last, report)
		}
	}
	wantNext(t, ws[0], "")
	wantLeft(ws[1], "")
	ws[0].Answered("busy", false)
	wantLeft(ws[2], "busy")
	h := all.Granted(key, nil, time.Now(), false, "held here") // by a caller that does not queue
	ws[0].Answered("busy again", false)
	wantLeft(ws[3], "held here")
	wantLeft(ws[0], "held here")
	last := all.Join(key, "last")
	h.End(false)
	wantNext(t, last, "held here") // the last report of all
}

func TestLeave_handoffComesFirst(t *testing.T) {
	_, h, ws := waiting(true, false, "a", "b")
	w := h.Next(time.Now(), always)
	left := make(chan string)
	go func() {
		o, _ := w.Leave()
		left <- o
	}()
	h.HandOff(w, "handed", "")
	if got := <-left; got != "handed" {
		t.Errorf("the leaving waiter received %q", got)
	}
	wantNext(t, ws[1], "none")
}

// A promoted waiter that leaves before it has asked makes room for the next.
func TestLeave_promotedPassesItsTurnOn(t *testing.T) {
	_, h, ws := waiting(false, false, "a", "b", "c")
	h.End(false)
	for _, w := range ws[:2] {
		if _, last := w.Leave(); last != "holder" {
			t.Errorf("%s left with %q", w.Caller, last)
		}
	}
	wantNext(t, ws[2], "holder")
}

func TestEnd_wakesTheContender(t *testing.T) {
	for name, c := range map[string]struct{ notified, lost, wakes bool }{
		"released, it polls":    {wakes: true},
		"released, notified":    {notified: true},
		"lost, it polls":        {lost: true, wakes: true},
		"lost, though notified": {lost: true, notified: true, wakes: true},
	} {
		t.Run(name, func(t *testing.T) {
			all := queue.New[string, string, string](true)
			w := all.Join(key, "a")
			w.Notified.Store(c.notified)
			for range 2 {
				all.Granted(key, nil, time.Now(), false, "holder").End(c.lost)
			}
			if n := len(w.Ask()); (n == 1) != c.wakes {
				t.Errorf("woken %d times, want a wake: %t", n, c.wakes)
			}
		})
	}
}

// A released lock whose release has no answer yet may be granted to this process again.
func TestEnd_olderHoldEndsNothing(t *testing.T) {
	all, older, ws := waiting(true, false, "a", "b")
	if next := older.Next(time.Now(), never); next != nil {
		t.Fatalf("handed off to %s", next.Caller)
	}
	wantNext(t, ws[0], "")
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
