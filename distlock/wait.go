package distlock

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/queue"
)

// The queues of a process, see package queue.
type (
	queues     = queue.Queues[*acquisition, outcome, lastAnswer]
	waiter     = queue.Waiter[*acquisition, outcome, lastAnswer]
	queueGrant = queue.Grant[*acquisition, outcome, lastAnswer]
)

// ownWait is how long a wait behind a lease of the own Locker lasts before a line says so.
const ownWait = time.Second

// waitBehindProcess waits in the queue of the process until the acquisition is the contender. Otherwise
// it has ended with a lease or an error. The wait ends with ctx.
func (a *acquisition) waitBehindProcess(ctx context.Context) (out outcome, ended bool) {
	select {
	case a.last = <-a.waiter.Ask():
		a.op.Blocker = a.last.metadata
		if busy := a.last.busy; busy != nil && busy.ThisProcess { // ⚑ no answer of the backend, and perhaps over
			a.last.busy = nil
		}
		return outcome{}, false
	case out = <-a.waiter.Result():
	case <-ctx.Done():
		out, a.last = a.waiter.Leave()
	}
	if out.lease == nil && out.err == nil {
		a.op.Blocker = a.last.metadata
		out = a.gaveUp()
	}
	return out, true
}

// warnOfOwnWait logs, once in the life of a Locker, that a call waits behind a lease of its own process: it
// may wait for the function that it is part of.
func (a *acquisition) warnOfOwnWait() {
	if since, _ := a.locker.queues.Held(a.op.Key); since.IsZero() || since.After(a.start) {
		return
	}
	a.locker.warnOwnWait.Do(func() {
		a.locker.log(a.ctx, slog.LevelWarn, "distlock: a call has waited for 1 s behind a lease of its own process; "+
			"if a call inside a Do or Turn was given the outer context, it waits for itself: "+
			"pass on the context of the function", a.op.Key)
	})
}

// pause waits until it is time to ask again. After a failure it lasts no longer than the patience. It
// returns a lease if the backend has handed the lock off.
func (a *acquisition) pause(ctx context.Context, reply driver.AcquireReply, patience time.Duration) *Lease {
	d := a.place.askWithin
	if a.place.wakes == nil || a.last.failure != nil { // a notification is not sure to come
		d = backoff(a.op.Attempts)
		if a.place.wanted {
			d = min(d, a.place.askWithin) // ⚑ its place must not end before the next request
		}
	}
	switch {
	case a.last.failure != nil:
		d = min(d, patience)
	case reply.State.TTL >= 0:
		d = min(d, reply.State.TTL+time.Millisecond)
	}
	timer := time.NewTimer(atLeastOneTick(d))
	defer timer.Stop()
	select {
	case wake, ok := <-a.place.wakes:
		if ok {
			return a.woken(wake)
		}
		a.place.wakes = nil // notifications have ended
		a.waiter.Notified.Store(false)
	case <-a.waiter.Ask():
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

const (
	minPause = 10 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// backoff returns the pause after a number of attempts, at least 1 ms: exponential backoff with full jitter
// (Brooker, "Exponential Backoff and Jitter", 2015).
func backoff(attempts int) time.Duration {
	bound := min(minPause<<min(attempts-1, 5), maxPause)
	return max(time.Millisecond, rand.N(bound+1)) // a shorter one would be a busy loop against the backend
}
