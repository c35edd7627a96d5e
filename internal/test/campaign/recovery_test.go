package campaign

import (
	"fmt"
	"slices"
	"time"
)

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

// await begins to wait.
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

// awaited reports whether a wait after a hit goes on.
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

// overdue looks for waits beyond their limit. A wait for a key without any other waiter ends without a
// result.
func (r *register) overdue(last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now()
	for key, p := range r.places {
		p.waits = slices.DeleteFunc(p.waits, func(w *wait) bool {
			patience := w.bar + 5*time.Second
			switch {
			case r.c.deserted(key, w.since, w.bar):
				r.c.unseen++
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
	stalled := overlap(stalls(c.watch, w.since, at), w.since, at)
	late := w.bar > 0 && took > w.bar
	// A machine so busy shows nothing, unless the wait is far longer than promised even without the
	// stalls.
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
