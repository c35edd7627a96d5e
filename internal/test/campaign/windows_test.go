package campaign

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

// window is the time in which a fault may show: from its strike until a TTL after its end. See
// docs/design/campaign.md.
type window struct {
	fault       *fault
	from, until int64
	run         int                 // the run of a worker; 0: of all; or noRun
	spares      func(string) bool   // keys that it does not concern: another master has them; nil: none
	forgets     bool                // the servers lose what they acknowledged
	after       int64               // acknowledgements after this time may be lost
	killed      int64               // and was asked for before this
	last        map[string]position // of sessions: the last entry that was kept; see forgot
}

// noRun is the number of no run.
const noRun = -1

// windows are those of a run.
type windows struct {
	mu  sync.Mutex
	ttl time.Duration
	all []*window
}

// open begins a window that lasts until it is closed.
func (w *windows) open(f *fault, run int, from int64) *window {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &window{fault: f, from: from, until: math.MaxInt64, run: run}
	w.all = append(w.all, v)
	return v
}

func (w *windows) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// begin has a window begin now, and not when it was opened.
func (w *windows) begin(v *window) { w.set(func() { v.from = now() }) }

// close ends a window, a TTL from now, unless it was closed before.
func (w *windows) close(v *window) { w.set(func() { v.until = min(v.until, now()+int64(w.ttl)) }) }

// end ends a window now: the fault is over.
func (w *windows) end(v *window) { w.set(func() { v.until = min(v.until, now()) }) }

// spare notes which keys a window does not concern.
func (w *windows) spare(v *window, spares func(key string) bool) { w.set(func() { v.spares = spares }) }

// find returns the fault of the first window that matches, or nil.
func (w *windows) find(is func(v *window) bool) *fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.all, is); i >= 0 {
		return w.all[i].fault
	}
	return nil
}

func (v *window) concerns(key string) bool { return v.spares == nil || !v.spares(key) }

// forget notes that the servers lose each write that was answered after one time and sent before
// another.
func (w *windows) forget(v *window, after, killed int64) {
	w.set(func() { v.forgets, v.after, v.killed = true, after, killed })
}

// kept notes the last entry of each session that the servers have kept.
func (w *windows) kept(v *window, last map[string]position) { w.set(func() { v.last = last }) }

// broken returns the fault that may have broken mutual exclusion of a key between two moments, for
// all workers or for one. Without such a fault, it returns nil.
func (w *windows) broken(from, until int64, key string, run int) *fault {
	return w.find(func(v *window) bool {
		return v.fault.breaks && v.from <= from && until <= v.until && (v.run == 0 || v.run == run) && v.concerns(key)
	})
}

// forgot returns the fault in which the servers have lost an entry: a call between two times has
// written it at a position. Where the position and the last kept entry are known, they decide.
// Elsewhere the times do.
func (w *windows) forgot(key string, at position, asked, answered int64) *fault {
	return w.find(func(v *window) bool {
		if !v.forgets || asked >= v.killed || !v.concerns(key) {
			return false
		}
		if last, known := v.last[key]; known && at != (position{}) {
			return at.behind(last)
		}
		return answered > v.after
	})
}

// forgetful returns a fault in which servers have lost something at some time between two.
func (w *windows) forgetful(key string, from, until int64) *fault {
	return w.find(func(v *window) bool {
		return v.forgets && v.from <= until && v.until >= from && v.concerns(key)
	})
}

// others returns a fault, other than that of this window, that was felt at some time between two.
func (w *windows) others(mine *window, from, until int64) *fault {
	return w.find(func(v *window) bool {
		return v != mine && v.from <= until && v.until >= from
	})
}

// span is a time in which a process was not let run. Workers send it.
type span struct{ From, Until int64 }

// spansOf are the spans of a watch between two times.
func spansOf(w *leakcheck.Watch, from, until int64) (spans []span) {
	for _, s := range w.Spans(time.Unix(0, from), time.Unix(0, until)) {
		spans = append(spans, span{s.From.UnixNano(), s.Until.UnixNano()})
	}
	return spans
}

// hiccup is by how much a machine that is not too busy is hardly ever late.
const hiccup = 20 * time.Millisecond

// stalls are the longer spans of the parent, in which no process may have been let run.
func stalls(w *leakcheck.Watch, from, until int64) []span {
	return slices.DeleteFunc(spansOf(w, from, until), func(s span) bool { return s.Until-s.From < int64(hiccup*5/4) })
}

// overlap is how much of the time between two moments spans take, which do not overlap each other.
func overlap(spans []span, from, until int64) (sum time.Duration) {
	for _, s := range spans {
		sum += time.Duration(max(0, min(until, s.Until)-max(from, s.From)))
	}
	return sum
}
