package campaign

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
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
	p.waits = r.arrived(p.waits, s, at)
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

// arrived ends the waits for this worker. A lease from before the fault does not count.
func (r *register) arrived(waits []*wait, s *said, at int64) []*wait {
	return slices.DeleteFunc(waits, func(w *wait) bool {
		if w.fromLeave || s.Run == w.not || s.Got < w.since {
			return false
		}
		r.c.recovered(w, time.Duration(at-w.since), at)
		return true
	})
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
