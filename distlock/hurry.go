package distlock

import (
	"context"
	"sync"
	"time"
)

// hurries makes contexts with a deadline for calls that mostly are over long before it. A timer of their own for each would be
// the next to fire, most of the time, for which the runtime wakes up a thread: that takes longer than the rest of the call.
// These use a few alarms again and again, which are set later and later, and fire only in a pause.
type hurries struct{ alarms sync.Pool } // of *alarm

// hurried is a context that ends at a deadline, with the values of another but not its cancellation.
type hurried struct {
	context.Context
	deadline time.Time
	alarm    *alarm
}

// alarm is the timer of one hurried after the other.
type alarm struct {
	mu    sync.Mutex
	set   bool      // by a call that is under way
	at    time.Time // when, on the monotonic clock even if the deadline is not
	rang  bool      // for it, and for none after it
	done  chan struct{}
	timer *time.Timer
}

func (h *hurries) begin(ctx context.Context, deadline time.Time) *hurried {
	a, _ := h.alarms.Get().(*alarm)
	if a == nil {
		a = &alarm{done: make(chan struct{})}
		a.timer = time.AfterFunc(time.Hour, a.ring)
	}
	a.mu.Lock()
	left := time.Until(deadline)
	a.set, a.at = true, time.Now().Add(left)
	a.timer.Reset(left)
	a.mu.Unlock()
	return &hurried{ctx, deadline, a}
}

// end is called when nobody uses the context any more.
func (h *hurries) end(ctx *hurried) {
	a := ctx.alarm
	a.mu.Lock()
	a.set = false
	rang := a.rang
	a.mu.Unlock()
	if !rang {
		h.alarms.Put(a)
	}
}

// ring may come late, for a call that has ended in the same moment, when the next is under way: that is not over yet.
func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.set && !a.rang && !time.Now().Before(a.at) {
		a.rang = true
		close(a.done)
	}
}

func (h *hurried) Deadline() (time.Time, bool) { return h.deadline, true }
func (h *hurried) Done() <-chan struct{}       { return h.alarm.done }

func (h *hurried) Err() error {
	h.alarm.mu.Lock()
	defer h.alarm.mu.Unlock()
	if h.alarm.rang {
		return context.DeadlineExceeded
	}
	return nil
}
