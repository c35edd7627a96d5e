// Package hurry makes contexts with a deadline for calls that mostly are over long before it.
package hurry

import (
	"context"
	"sync"
	"time"
)

// Alarms are what the contexts are made with. A timer of their own for each would be the next to fire, most of the time, for
// which the runtime wakes up a thread: that takes longer than the rest of the call. So a few alarms are used again and again,
// which are set later and later, and fire only in a pause. The zero value is ready.
type Alarms struct{ pool sync.Pool } // of *alarm

// Context ends at a deadline. It has the values of another one, but not its cancellation.
type Context struct {
	context.Context
	deadline time.Time
	alarm    *alarm
}

// alarm is the timer of one Context after the other.
type alarm struct {
	mu    sync.Mutex
	set   bool      // by a call that is under way
	at    time.Time // when, on the monotonic clock even if the deadline is not
	rang  bool      // for it, and for none after it
	done  chan struct{}
	timer *time.Timer
}

// Begin makes a context for a call.
func (h *Alarms) Begin(ctx context.Context, deadline time.Time) *Context {
	a, _ := h.pool.Get().(*alarm)
	if a == nil {
		a = &alarm{done: make(chan struct{})}
		a.timer = time.AfterFunc(time.Hour, a.ring)
	}
	a.mu.Lock()
	left := time.Until(deadline)
	a.set, a.at = true, time.Now().Add(left)
	a.timer.Reset(max(left, 1)) // not due at once: golang.org/issue/78156, see timers.go of package distlock
	a.mu.Unlock()
	return &Context{ctx, deadline, a}
}

// End is to be called when the call is over, and nobody uses its context any more.
func (h *Alarms) End(ctx *Context) {
	a := ctx.alarm
	a.mu.Lock()
	a.set = false
	rang := a.rang
	a.mu.Unlock()
	if !rang {
		h.pool.Put(a)
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

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.alarm.done }

// Err implements context.Context.
func (c *Context) Err() error {
	c.alarm.mu.Lock()
	defer c.alarm.mu.Unlock()
	if c.alarm.rang {
		return context.DeadlineExceeded
	}
	return nil
}
