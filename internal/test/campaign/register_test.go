package campaign

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

// register is what critical sections access.
type register struct {
	mu     sync.Mutex
	c      *campaign
	places map[string]*place
	visits map[visitID]*visit // that have begun and not ended
}

type place struct {
	inside *visit
	top    int64 // the highest token that was inside
	since  int64 // when it came
	by     int   // the run it was of
	grants []*grant
	waits  []*wait
	used   int64
}

// grant is a lease that the register was told of. Its token was granted between two times.
type grant struct {
	run               int
	began, got, fence int64
}

const sections = "critical sections"

const remembered = 32

type visitID struct {
	run   int
	lease int64
}

type visit struct {
	id      visitID
	key     string
	fence   int64
	at      int64 // when it began
	got     int64
	clashes []clash
}

type clash struct {
	by visitID
	at int64
}

func newRegister(c *campaign) *register {
	return &register{c: c, places: make(map[string]*place), visits: make(map[visitID]*visit)}
}

func (r *register) place(key string) *place {
	p := r.places[key]
	if p == nil {
		p = &place{}
		r.places[key] = p
	}
	return p
}

// enter begins a critical section. A lower token than one that was there is refused.
func (r *register) enter(s *said) (a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now()
	p := r.place(s.Key)
	p.used = at
	r.rising(p, s)
	if s.Fence <= p.top {
		r.c.count("stale accesses refused by the register", 1)
		return answer{Refused: true}
	}
	v := &visit{id: visitID{s.Run, s.Lease}, key: s.Key, fence: s.Fence, at: at, got: s.Got}
	if p.inside != nil {
		p.inside.clashes = append(p.inside.clashes, clash{v.id, at})
	}
	p.inside, p.top, p.since, p.by = v, max(p.top, s.Fence), at, s.Run
	r.visits[v.id] = v
	r.c.count(sections, 1)
	p.waits = slices.DeleteFunc(p.waits, func(w *wait) bool {
		if w.fromLeave || s.Run == w.not || s.Got < w.since { // a lease from before the fault does not count
			return false
		}
		r.c.recovered(w, time.Duration(at-w.since), at)
		return true
	})
	return answer{}
}

// write is an access within a critical section: the register compares tokens, as a fenced store does.
func (r *register) write(s *said) (a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.Refused = s.Fence < r.place(s.Key).top; a.Refused {
		r.c.count("stale accesses refused by the register", 1)
	} else {
		r.c.count("acts", 1)
	}
	return a
}

// rising checks that tokens rise in the order of their grants: a request that began during another
// lease gets a higher one.
func (r *register) rising(p *place, s *said) {
	for _, g := range p.grants {
		if g.got < s.Began && g.fence >= s.Fence {
			r.c.blame(&finding{kind: "fence", key: s.Key, at: s.Got, text: fmt.Sprintf(
				"%s: run %d was granted token %d, %s after %d had been granted", s.Key, s.Run, s.Fence, time.Duration(s.Began-g.got), g.fence)})
		}
	}
	if p.grants = append(p.grants, &grant{s.Run, s.Began, s.Got, s.Fence}); len(p.grants) > remembered {
		p.grants = p.grants[1:]
	}
}

// leave ends a critical section, and says what has become of those that met it. The answer says whether
// another one came in before the lease was released.
func (r *register) leave(s *said) (a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := visitID{s.Run, s.Lease}
	v := r.visits[id]
	if v == nil {
		return a
	}
	delete(r.visits, id)
	p := r.place(v.key)
	if p.inside == v {
		p.inside = nil
	}
	for _, w := range p.waits {
		if w.fromLeave {
			w.since, w.fromLeave = now(), false
		}
	}
	if s.Trusted != 0 && strings.HasSuffix(v.key, "/leader") { // it still had the lease
		p.waits = append(p.waits, &wait{h: &hit{fault: resigned}, key: v.key, since: now(), not: v.id.run, bar: time.Second})
	}
	a.Refused = len(v.clashes) > 0 && !s.Closed
	for _, c := range v.clashes {
		r.met(v, c, s)
	}
	return a
}

// ahead is how long before the next holder comes a lease's context is to be cancelled at a TTL of 1
// s, and somewhat more: a process that is not let run in that time tells its holders late.
const ahead = 40 * time.Millisecond

// met judges two who were inside at once: the first says when it last trusted its lease, and when
// it was told that it is lost.
func (r *register) met(v *visit, c clash, s *said) {
	if s.Trusted > c.at {
		r.c.blame(&finding{kind: "S1", key: v.key, at: c.at, text: fmt.Sprintf(
			"%s: run %d trusted its lease under token %d, %s after run %d had come in",
			v.key, v.id.run, v.fence, time.Duration(s.Trusted-c.at), c.by.run)})
		return
	}
	switch late := time.Duration(s.Ended - c.at); {
	case s.Trusted != 0: // its work was over before the other came, and the word of it was under way
		r.c.count("met: told in time", 1)
	// A release just after the notice may be reported later than the next holder.
	case s.Closed && s.Ended != 0 && late <= hiccup:
		r.c.count("met: closed", 1)
	case s.Ended == 0:
		r.c.blame(&finding{kind: "N", key: v.key, at: c.at, never: true, text: fmt.Sprintf(
			"%s: run %d lost its lease under token %d, run %d came in, and its context was never cancelled", v.key, v.id.run, v.fence, c.by.run)})
	case late <= 0:
		r.c.count("met: told in time", 1)
	default:
		stood := overlap(s.Naps, c.at-int64(ahead), s.Ended)
		r.c.blame(&finding{kind: "N", key: v.key, at: c.at, until: s.Ended, run: v.id.run, starved: late <= stood, text: fmt.Sprintf(
			"%s: the context of run %d, under token %d, was cancelled %s after run %d had come in; it was not run for %s of that and the %s before",
			v.key, v.id.run, v.fence, late, c.by.run, stood, ahead)})
	}
}

// trusted is what one says who was refused although its lease is held, or who has released its lease
// without an error after another one came in: at that moment a higher token had been inside.
func (r *register) trusted(s *said) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.place(s.Key)
	if p.top < s.Fence {
		return
	}
	r.c.blame(&finding{kind: "S1", key: s.Key, at: s.Trusted, text: fmt.Sprintf(
		"%s: run %d trusts its lease under token %d, %s after run %d had come in under %d",
		s.Key, s.Run, s.Fence, time.Duration(s.Trusted-p.since), p.by, p.top)})
}

// gone removes the visits of a killed run, and the keys that only it wanted: a dead process does
// nothing any more.
func (r *register) gone(run int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, v := range r.visits {
		if id.run != run {
			continue
		}
		r.c.count("met: killed before it said", len(v.clashes))
		delete(r.visits, id)
		if p := r.place(v.key); p.inside == v {
			p.inside = nil
		}
	}
	for _, p := range r.places {
		p.waits = slices.DeleteFunc(p.waits, func(w *wait) bool {
			if w.by == run {
				r.c.count("waits for keys without any other waiter", 1)
			}
			return w.by == run
		})
	}
}

func (r *register) holds(run int) (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, v := range r.visits {
		if p := r.place(v.key); id.run == run && p.inside == v && !strings.Contains(v.key, own) {
			keys = append(keys, v.key)
		}
	}
	return keys
}

func (r *register) sweep(before int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, p := range r.places {
		if p.used < before && p.inside == nil && len(p.waits) == 0 {
			delete(r.places, key)
		}
	}
}

// wait is for the next worker on a key after a fault.
type wait struct {
	h         *hit
	key       string
	since     int64
	not       int           // the run with the fault
	bar       time.Duration // 0: none is promised
	fromLeave bool          // counts from the end of the present visit
	by        int           // the only run that wants the key; 0: many do
}

func (r *register) await(w *wait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.place(w.key)
	p.waits = append(p.waits, w)
}

func (r *register) awaited(h *hit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.places {
		if slices.ContainsFunc(p.waits, func(w *wait) bool { return w.h == h }) {
			return true
		}
	}
	return false
}

// overdue looks for waits beyond their limit. A wait for a deserted key ends without a result.
func (r *register) overdue(last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now()
	for key, p := range r.places {
		p.waits = slices.DeleteFunc(p.waits, func(w *wait) bool {
			patience := w.bar + 5*time.Second
			switch {
			case r.c.deserted(key, w.since, w.bar):
				r.c.count("waits for keys without any other waiter", 1)
				return true
			case w.bar > 0 && at-w.since > int64(patience):
				r.c.recovered(w, time.Duration(at-w.since), at)
				return true
			}
			return last
		})
	}
}

// recovered notes the time until another worker came. It blames the library for a time above the
// limit, unless something else has happened in between.
func (c *campaign) recovered(w *wait, took time.Duration, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stat(w.h.fault)
	if (w.bar > 0 || w.h.of == ofWorker) && c.windows.others(w.h.window, w.since-int64(c.plan.ttl), at) != nil {
		s.disturbed = append(s.disturbed, took)
		return
	}
	stalled := c.watch.Stalled(time.Unix(0, w.since), time.Unix(0, at))
	late := w.bar > 0 && took > w.bar
	// A machine so busy shows nothing, unless the wait is far longer than promised without the stalls.
	if late && stalled > took/10 && took-stalled < 2*w.bar {
		s.disturbed = append(s.disturbed, took)
		return
	}
	s.recovered = append(s.recovered, took)
	if late {
		c.findings = append(c.findings, &finding{kind: "L", key: w.key, at: at, fault: w.h.fault, text: fmt.Sprintf(
			"%s: after %s (%d) no worker came for %s; promised are %s; the machine stood for %s",
			w.key, w.h.fault.name, w.h.n, took, w.bar, stalled)})
	}
}

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
