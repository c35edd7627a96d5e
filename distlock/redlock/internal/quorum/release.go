package quorum

import (
	"context"
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
	owes := false
	a.release(p, req, a.tokens() == 0, &owes)
	agreed, effects, err := p.agree(ctx, true, func(a *answer) bool { return a.reply.Outcome == Released })
	if err != nil || agreed == unknown {
		return driver.ReleaseReply{}, p.failure(err, effects > 0 || err != nil)
	}
	owes = true
	q.noteRelease(k, a, agreed == yes, req.Tombstone)
	return driver.ReleaseReply{Released: agreed == yes}, nil
}

// attemptToRelease returns nil and the stored reply if the acquisition was released before.
func (q *quorum) attemptToRelease(k key, tombstone time.Duration) (a *attempt, released bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(k, max(tombstone, unused))
	e.noMoreAcquires = e.noMoreAcquires || e.granted || tombstone > 0
	if e.releaseDecided {
		return nil, e.released
	}
	if e.last == nil {
		e.last = q.unknownAttempt(k)
	}
	return e.last, false
}

// noteRelease notes the reply to a Release.
func (q *quorum) noteRelease(k key, a *attempt, released bool, tombstone time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[k]
	if e == nil || e.last != a || !e.noMoreAcquires {
		return
	}
	e.releaseDecided, e.released, e.last = true, released, nil
	if tombstone == 0 {
		q.sweptSoon(e, keepReleased)
	}
}

// release asks the nodes to end the attempt. A Release that a node does not answer is owed if owes is
// true when the operation ends.
// ⚑ A Release follows the end of the Acquire that is under way: it must not overtake the Acquire.
func (a *attempt) release(p *poll, req driver.ReleaseRequest, quiet bool, owes *bool) {
	for _, n := range a.q.nodes {
		p.expect(n)
		a.mu.Lock()
		v := &a.votes[n.index]
		under := v.pending > 0
		if under {
			v.afterAcquires = append(v.afterAcquires, func() { a.releaseOn(n, p, req, quiet, owes) })
		}
		a.mu.Unlock()
		if !under {
			a.releaseOn(n, p, req, quiet, owes)
		}
	}
}

// releaseOn asks one node. A node that cannot hold the name gets no request. The request has a
// tombstone if req has one, or if an Acquire may arrive later.
func (a *attempt) releaseOn(n *node, p *poll, req driver.ReleaseRequest, quiet bool, owes *bool) {
	a.mu.Lock()
	v := a.votes[n.index]
	a.mu.Unlock()
	if v.settled || !v.holds && !v.partlyRefused {
		reply := Reply{Outcome: NotHeld}
		if v.released {
			reply.Outcome = Released
		}
		p.note(n, answer{done: true, reply: reply})
		return
	}
	req.Name, req.Owner = a.req.Name, a.req.Owner
	if v.acquireMayArrive {
		req.Tombstone = max(req.Tombstone, copyLife(a.req.TTL))
	}
	var failed bool
	p.ask(n, func(ctx context.Context) (Reply, error) {
		reply, err := a.sendRelease(ctx, n, req, quiet)
		failed = err != nil
		return reply, err
	}, func() {
		if failed && *owes {
			a.q.owe(n, owedRelease{a, req, quiet, time.Now().Add(copyLife(a.req.TTL))})
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
		v.settled, v.released = true, reply.Outcome == Released
	}
	return reply, err
}
