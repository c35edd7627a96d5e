package campaign

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
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

const noRun = -1

type windows struct {
	mu  sync.Mutex
	ttl time.Duration
	all []*window
}

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

func (w *windows) end(v *window) { w.set(func() { v.until = min(v.until, now()) }) }

func (w *windows) spare(v *window, spares func(key string) bool) { w.set(func() { v.spares = spares }) }

func (w *windows) find(is func(v *window) bool) *fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.all, is); i >= 0 {
		return w.all[i].fault
	}
	return nil
}

func (v *window) concerns(key string) bool { return v.spares == nil || !v.spares(key) }

// forget notes that each write that was answered after one time and sent before another is lost.
func (w *windows) forget(v *window, after, killed int64) {
	w.set(func() { v.forgets, v.after, v.killed = true, after, killed })
}

func (w *windows) kept(v *window, last map[string]position) { w.set(func() { v.last = last }) }

// broken returns the fault that may have broken mutual exclusion of a key between two moments, or nil.
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

func spansOf(w *leakcheck.Watch, from, until int64) (spans []span) {
	for _, s := range w.Spans(time.Unix(0, from), time.Unix(0, until)) {
		spans = append(spans, span{s.From.UnixNano(), s.Until.UnixNano()})
	}
	return spans
}

// hiccup is by how much a machine that is not too busy is hardly ever late.
const hiccup = 20 * time.Millisecond

// overlap is how much of the time between two moments spans take, which do not overlap each other.
func overlap(spans []span, from, until int64) (sum time.Duration) {
	for _, s := range spans {
		sum += time.Duration(max(0, min(until, s.Until)-max(from, s.From)))
	}
	return sum
}

// finding is one thing that is wrong. Whether it lies in the window of a fault that may cause it is
// known when the run is over: some faults are noticed late.
type finding struct {
	kind  string // S1, S2, fence, N, O, L, lost, stale, failure
	key   string
	at    int64
	run   int   // the run whose windows count, with the windows of all runs
	until int64 // it was so from at until then; 0: at is all there is
	fault *fault
	text  string
	never bool // no fault may cause it
	// starved is an N for which the process was not let run for as long as it was late.
	starved bool
	// The finding is void if the servers have lost the data of these times; 0: that does not matter.
	asked, answered int64
}

func (f *finding) String() string { return f.kind + ": " + f.text }

const most = 20_000

func (c *campaign) blame(f *finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.findings) < most {
		c.findings = append(c.findings, f)
	}
}

// excusable are the kinds of which a fault may be an excuse. No other kind has one.
var excusable = []string{"S1", "N"}

// attribute parts the findings in those that a fault may cause, which are counted, and the others.
func (c *campaign) attribute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.findings {
		if f.answered != 0 {
			if forgot := c.windows.forgot(f.key, position{}, f.asked, f.answered); forgot != nil {
				c.stat(forgot).apart["lost"]++
				continue
			}
		}
		cause := f.fault
		if slices.Contains(excusable, f.kind) && !f.never {
			if cause == nil {
				cause = c.windows.broken(f.at, max(f.at, f.until), f.key, f.run)
			}
			if cause != nil && cause.breaks {
				c.stat(cause).apart[f.kind]++
				continue
			}
		}
		if f.starved {
			c.count("met: in a process that was not let run", 1)
			continue
		}
		f.text += fmt.Sprintf(" [%s after the start]", time.Duration(f.at-c.start).Round(time.Millisecond))
		if near := c.windows.others(nil, f.at, f.at); near != nil {
			f.text += " while " + near.name
		}
		c.wrong = append(c.wrong, f)
	}
	c.findings = nil
}

func book(t *testing.T) *campaign {
	c := &campaign{t: t, plan: planFor("node", 1, time.Second), stats: make(map[*fault]*stat), counts: make(counts), start: now()}
	c.windows.ttl = c.plan.ttl
	c.register, c.ledger = newRegister(c), newLedger(c)
	return c
}

// judged returns the findings, and the counts of those that are judged apart.
func (c *campaign) judged() string {
	c.attribute()
	wrong, apart := make(map[string]int), make(map[string]int)
	for _, f := range c.wrong {
		wrong[f.kind]++
	}
	for _, s := range c.stats {
		for kind, n := range s.apart {
			apart[kind] += n
		}
	}
	return fmt.Sprintf("%s, apart %s", list(wrong), list(apart))
}

// clash has run 2 come in while run 1 is inside, which then says what it knows.
func (c *campaign) clash(says func(at int64) said) {
	enter := func(run int, fence int64) {
		c.register.enter(&said{Run: run, Lease: 1, Key: "key", Fence: fence, Began: now(), Got: now()})
	}
	enter(1, 10)
	enter(2, 20)
	leave := says(now())
	leave.Run, leave.Lease, leave.Key = 1, 1, "key"
	if c.register.leave(&leave).Refused && leave.Text == "released" {
		c.register.trusted(&said{Run: 1, Key: "key", Fence: 10, Trusted: now()})
	}
}

// Two who trust their leases at once break S1, unless a fault is felt that may do that, by one of
// them, or by all.
func TestAttribute_windows(t *testing.T) {
	trusts := func(at int64) said { return said{Trusted: at + 1} }
	late := func(at int64) said { return said{Ended: at + int64(50*time.Millisecond)} }
	for _, test := range []struct {
		name   string
		window func(*campaign)
		says   func(at int64) said
		want   string
	}{
		{"no fault", nil, trusts, "1 (1 S1), apart 0"},
		{"told late", nil, late, "1 (1 N), apart 0"},
		{"told late, and not run for longer", nil, func(at int64) said {
			return said{Ended: at + 50e6, Naps: []span{{at - 20e6, at + 40e6}}}
		}, "0, apart 0"},
		{"told late, and not run for less", nil, func(at int64) said {
			return said{Ended: at + 50e6, Naps: []span{{at - 20e6, at + 20e6}}}
		}, "1 (1 N), apart 0"},
		{"told late, and not run long before", nil, func(at int64) said {
			return said{Ended: at + 50e6, Naps: []span{{at - 900e6, at - 35e6}}}
		}, "1 (1 N), apart 0"},
		{"told late, and not run since", nil, func(at int64) said {
			return said{Ended: at + 50e6, Naps: []span{{at + 50e6, at + 900e6}}}
		}, "1 (1 N), apart 0"},
		{"never told", nil, func(int64) said { return said{} }, "1 (1 N), apart 0"},
		{"told in time", nil, func(at int64) said { return said{Ended: at - int64(time.Second)} }, "0, apart 0"},
		{"told in time, and its release has ended another lease", nil, func(at int64) said {
			return said{Ended: at - int64(time.Second), Text: "released"}
		}, "1 (1 S1), apart 0"},
		{"released by Close, and again", nil, func(at int64) said {
			return said{Ended: at - int64(time.Second), Closed: true, Text: "released"}
		}, "0, apart 0"},
		{"over before", nil, func(at int64) said { return said{Trusted: at - int64(time.Second)} }, "0, apart 0"},
		{"a fault that breaks nothing", func(c *campaign) { c.windows.open(serverFaults[1], 0, now()) }, trusts, "1 (1 S1), apart 0"},
		{"the server restarts empty", func(c *campaign) { c.windows.open(serverFaults[0], 0, now()) }, trusts, "0, apart 1 (1 S1)"},
		{"it has, and it is over", func(c *campaign) {
			c.windows.open(serverFaults[0], 0, c.start-10*int64(c.plan.ttl)).until = c.start - 1
		}, trusts, "1 (1 S1), apart 0"},
		{"another master of a cluster does", func(c *campaign) {
			c.windows.spare(c.windows.open(serverFaults[0], 0, now()), func(key string) bool { return key == "key" })
		}, trusts, "1 (1 S1), apart 0"},
		{"released by Close, and told a bit late", nil, func(at int64) said { return said{Ended: at + 5e6, Closed: true} }, "0, apart 0"},
		{"released by Close, and told late", nil, func(at int64) said { return said{Ended: at + 50e6, Closed: true} }, "1 (1 N), apart 0"},
		{"the server restarts empty, and it is never told", func(c *campaign) { c.windows.open(serverFaults[0], 0, now()) },
			func(int64) said { return said{} }, "1 (1 N), apart 0"},
		{"the server restarts empty, and it is told when that is over", func(c *campaign) {
			c.windows.open(serverFaults[0], 0, now()).until = c.start + int64(10*time.Second)
		}, func(at int64) said { return said{Ended: at + int64(11*time.Second)} }, "1 (1 N), apart 0"},
		{"the first is stopped", func(c *campaign) { c.windows.open(workerFaults[1], 1, now()) }, late, "0, apart 1 (1 N)"},
		{"the first is stopped, and trusts", func(c *campaign) { c.windows.open(workerFaults[1], 1, now()) }, trusts, "1 (1 S1), apart 0"},
		{"the second is stopped", func(c *campaign) { c.windows.open(workerFaults[1], 2, now()) }, trusts, "1 (1 S1), apart 0"},
		{"somebody else is stopped", func(c *campaign) { c.windows.open(workerFaults[1], 3, now()) }, late, "1 (1 N), apart 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			if test.window != nil {
				test.window(c)
			}
			c.clash(test.says)
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// A fault without any effect does not count.
func TestCause_countsWhatHasStruck(t *testing.T) {
	c := book(t)
	f := &fault{name: "some", of: ofWorker, strike: func(c *campaign, h *hit) {
		if h.n == 0 {
			c.misses(h, "there is no worker")
		}
	}}
	for n := range 3 {
		c.cause(&hit{fault: f, n: n})
	}
	if struck, missed := c.struck(); struck != 2 || missed != 1 {
		t.Errorf("%d faults had an effect, and %d had none, want 2 and 1", struck, missed)
	}
}
