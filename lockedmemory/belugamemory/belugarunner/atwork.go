package belugarunner

import "sync"

// atWork says whether a run can still write by more than an Update under way.
type atWork struct {
	mu      sync.Mutex
	reading bool // from the worker's Get until its agents end, or until it has no session
	agents  int  // at work, and the worker of a Runner of New
}

func (w *atWork) none() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.reading && w.agents == 0
}

// read notes a Get, and reports whether nothing was at work before.
func (w *atWork) read() (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first = !w.reading && w.agents == 0
	w.reading = true
	return first
}

// begin notes the begin of an agent.
func (w *atWork) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agents++
}

// end notes the end of an agent, or with 0 agents that the worker has no session. It reports whether
// nothing is at work any more.
func (w *atWork) end(agents int) (none bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.agents -= agents; w.agents == 0 {
		w.reading = false
	}
	return w.agents == 0
}
