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
