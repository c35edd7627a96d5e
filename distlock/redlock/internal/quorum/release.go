package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Release implements driver.Driver. The attempt is over in each case: after an error, the caller sends
// another Release.
func (q *quorum) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	if ctx.Err() != nil {
		return driver.ReleaseReply{}, notDone(ctx)
	}
	k := key{req.Name, req.Owner}
	a, released := q.attemptToRelease(k, req.Tombstone)
	if a == nil {
		return driver.ReleaseReply{Released: released}, nil
	}
	a.finish()
	p := newPoll(q, ctx, limit(a.req.TTL))
	defer close(p.decided)
	a.release(p, req, a.tokens() == 0)
	agreed, effects, err := p.agree(ctx, true, func(a *answer) bool { return a.reply.Outcome == Released })
	if err != nil || agreed == unknown {
		return driver.ReleaseReply{}, p.failure(err, effects > 0 || err != nil)
	}
	p.owes = true
	q.noteRelease(k, a, agreed == yes, req.Tombstone)
	return driver.ReleaseReply{Released: agreed == yes}, nil
}

// attemptToRelease returns nil and the stored reply if the acquisition was released before.
func (q *quorum) attemptToRelease(k key, tombstone time.Duration) (a *attempt, released bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(k, max(tombstone, keepEntry))
	switch {
	case e.last == nil && e.cancelled:
		return nil, e.released
	case e.last == nil:
		e.last = q.unknownAttempt(k)
	}
	e.cancelled = e.cancelled || e.granted() || tombstone > 0
	return e.last, false
}

// noteRelease notes the reply to a Release.
func (q *quorum) noteRelease(k key, a *attempt, released bool, tombstone time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[k]; e != nil && e.last == a && e.cancelled {
		e.released, e.last = released, nil
		e.until = time.Now().Add(max(tombstone, keepEntry))
	}
}

// release asks the nodes to end the attempt.
// ⚑ A Release follows the end of the Acquire that is under way: it must not overtake the Acquire.
func (a *attempt) release(p *poll, req driver.ReleaseRequest, quiet bool) {
	for _, n := range a.q.nodes {
		p.expect(n)
		a.mu.Lock()
		v := &a.votes[n.index]
		under := v.pending > 0
		if under {
			v.afterAcquires = append(v.afterAcquires, func() { a.releaseOn(n, p, req, quiet) })
		}
		a.mu.Unlock()
		if !under {
			a.releaseOn(n, p, req, quiet)
		}
	}
}

// releaseOn asks one node. A node that cannot hold the name gets no request. The request has a
// tombstone if req has one, or if an Acquire may arrive later.
func (a *attempt) releaseOn(n *node, p *poll, req driver.ReleaseRequest, quiet bool) {
	a.mu.Lock()
	v := &a.votes[n.index]
	holds, released, late := v.holds, v.released, v.acquireMayArrive
	a.mu.Unlock()
	if !holds {
		reply := Reply{Outcome: NotHeld}
		if released {
			reply.Outcome = Released
		}
		p.note(n, answer{done: true, reply: reply})
		return
	}
	req.Name, req.Owner = a.req.Name, a.req.Owner
	if late {
		req.Tombstone = max(req.Tombstone, copyLife(a.req.TTL))
	}
	p.ask(n, func(ctx context.Context) (Reply, error) {
		return a.sendRelease(ctx, n, req, quiet)
	}, func(_ Reply, err error) {
		if err != nil && p.owes {
			n.owe(owedRelease{a, req, quiet, time.Now().Add(copyLife(a.req.TTL))})
		}
	})
}

// sendRelease asks a node, and notes the answer.
func (a *attempt) sendRelease(ctx context.Context, n *node, req driver.ReleaseRequest, quiet bool) (Reply, error) {
	reply, err := n.Release(ctx, req, quiet)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		v := &a.votes[n.index]
		v.holds, v.released = false, reply.Outcome == Released
	}
	return reply, err
}

// The pauses between two Releases that a node does not answer.
const (
	minResend = 10 * time.Millisecond
	maxResend = time.Second
)

// owedReleases are the Releases that a node has not answered. One goroutine sends them, one at a
// time, until they are answered.
type owedReleases struct {
	mu   sync.Mutex
	list []owedRelease // the goroutine runs unless it is empty
}

// owedRelease is a Release of an attempt.
type owedRelease struct {
	attempt *attempt
	req     driver.ReleaseRequest
	quiet   bool
	until   time.Time
}

// owe has a Release sent until the node answers.
func (n *node) owe(r owedRelease) {
	n.owed.mu.Lock()
	defer n.owed.mu.Unlock()
	n.owed.list = append(n.owed.list, r)
	if len(n.owed.list) == 1 {
		n.q.calls.Go(n.sendOwed)
	}
}

// sendOwed sends the owed Releases until the list is empty, or the driver ends.
func (n *node) sendOwed() {
	for pause, more := minResend, true; more && sleep(n.q.life, pause) == nil; {
		n.owed.mu.Lock()
		r := n.owed.list[0]
		n.owed.mu.Unlock()
		ctx, cancel := context.WithTimeout(n.q.life, callLimit)
		_, err := r.attempt.sendRelease(ctx, n, r.req, r.quiet)
		cancel()
		if pause = min(max(2*pause, minResend), maxResend); err == nil {
			pause = 0
		}
		more = n.tried(err != nil)
	}
}

// tried takes the first Release off the list, and those whose time is over. One without an answer goes
// to the end: it does not keep the others. It reports whether the list has another one.
func (n *node) tried(again bool) (more bool) {
	n.owed.mu.Lock()
	defer n.owed.mu.Unlock()
	if again {
		n.owed.list = append(n.owed.list, n.owed.list[0])
	}
	now := time.Now()
	n.owed.list = slices.DeleteFunc(n.owed.list[1:], func(r owedRelease) bool { return now.After(r.until) })
	return len(n.owed.list) > 0
}
