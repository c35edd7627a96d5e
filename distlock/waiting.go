package distlock

import (
	"time"

	"github.com/belugalock/belugalock/distlock/internal/queue"
)

// The queues of a process, see package queue.
type (
	queues = queue.Queues[*acquisition, outcome]
	waiter = queue.Waiter[*acquisition, outcome]
	hold   = queue.Hold[*acquisition, outcome]
)

// outcome is how an acquisition ended, or the wait for its start as the contender: then it has no
// lease and no error.
type outcome struct {
	lease   *Lease
	err     error
	failure queue.Failure // says which waiters err concerns
	last    lastAnswer
}

// lastAnswer describes the lock that an acquisition waits for, as the backend or the process knows it.
type lastAnswer struct {
	busy     *BusyError // without an answer nil
	at       time.Time
	metadata map[string]string // of the holder
	ticket   int64             // in the backend's queue, for the next contender
	failure  error             // came after the answer
}

// err is the error that the last answer makes, with others that wait in the process. It is nil without an
// answer and a failure.
func (s *lastAnswer) err(others int) error {
	if s.busy == nil {
		return s.failure
	}
	busy := *s.busy
	busy.Held += time.Since(s.at)
	busy.Waiters += others
	if s.failure == nil {
		return &busy
	}
	return &interruptedError{s.failure, &busy}
}

// answer is the last answer for waiters behind a lease of their process.
func (le *Lease) answer() lastAnswer {
	return lastAnswer{busy: le.grant.locker.busy, at: le.acquired, metadata: le.metadata}
}

// waitBehindProcess waits in the queue of the process until the acquisition has its lease, has failed, or is
// the contender.
func (a *acquisition) waitBehindProcess() outcome {
	var over <-chan time.Time
	if a.wait >= 0 {
		timer := time.NewTimer(atLeastOneTick(time.Until(a.start.Add(a.wait))))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case out := <-a.waiter.Result():
		return a.received(out)
	case <-a.ctx.Done():
	case <-over:
	}
	out, others := a.waiter.Leave()
	if out.lease == nil {
		a.last = out.last
		a.op.Blocker = a.last.metadata
		return a.gaveUp(others)
	}
	return a.received(out)
}

// received notes the result of the wait.
func (a *acquisition) received(out outcome) outcome {
	a.last = out.last
	if out.lease != nil {
		a.op.Blocker, a.handoff = out.last.metadata, HandoffLocal
	}
	return out
}

// handOffLocked makes the next waiter of the process the holder.
func (g *grant) handOffLocked(next *waiter, at time.Time) {
	before := g.holder
	g.holder = g.lease(next.Caller, before.Fence()+1, at)
	handed := outcome{lease: g.holder, last: lastAnswer{metadata: before.metadata}}
	g.hold.HandOff(next, handed, outcome{last: g.holder.answer()})
}
