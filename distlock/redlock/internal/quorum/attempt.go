package quorum

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// attempt is one try of an acquisition, and its grant.
type attempt struct {
	q   *quorum
	req Proposal // without a token

	mu      sync.Mutex
	token   int64  // of the grant
	highest int64  // the highest token that a node may have for the attempt
	raises  int    // Raises under way
	over    bool   // no request follows but a Release
	votes   []vote // by node
}

// vote is the state of an attempt on one node.
type vote struct {
	pending          int      // Acquires under way
	afterAcquires    []func() // called after the last of them
	acquireMayArrive bool     // one without an answer
	holds            bool     // the node has granted the name, or may have, and no Release was answered
	released         bool     // the answer to a Release
}

// newAttempt makes an attempt of an acquisition.
func (q *quorum) newAttempt(req driver.AcquireRequest, number int) *attempt {
	return &attempt{q: q, votes: make([]vote, len(q.nodes)), req: Proposal{
		Name: req.Name, Owner: nodeOwner(req.Owner, number), TTL: req.TTL,
		Holder: req.Holder, Metadata: maps.Clone(req.Metadata), Frees: req.Frees,
	}}
}

// unknownAttempt is that of an acquisition that the driver does not know. No node has granted it.
// ⚑ All nodes are asked even so: the caller learns whether they answer.
func (q *quorum) unknownAttempt(k key) *attempt {
	a := q.newAttempt(driver.AcquireRequest{Name: k.name, Owner: k.owner, TTL: callLimit}, 0)
	for i := range a.votes {
		a.votes[i].holds = true
	}
	return a
}

// begin makes an attempt of an acquisition, or returns the attempt that holds the name. It returns
// nil if the acquisition is over.
func (q *quorum) begin(k key, req driver.AcquireRequest) (a *attempt, holds bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(k, keepEntry)
	if e.cancelled {
		return nil, false
	}
	if holds = e.granted(); !holds {
		q.attempts++
		e.last = q.newAttempt(req, q.attempts)
	}
	return e.last, holds
}

// noteGrant notes the grant of an attempt. It reports false if the acquisition is over.
func (q *quorum) noteGrant(k key, a *attempt, token int64) bool {
	q.noteToken(k.name, token+Block)
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(k, a.req.TTL+copyLife(a.req.TTL))
	return !e.cancelled && e.last == a && a.grant(token)
}

// noteRefusal notes that an attempt was refused.
func (q *quorum) noteRefusal(k key, a *attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[k]; e != nil && e.last == a && !e.cancelled {
		delete(q.entries, k) // ⚑ its undo goes on without the table
	}
}

// noteLoss notes that the grant of an attempt is lost, and undoes the attempt on the nodes that
// still have it: no Release follows.
func (q *quorum) noteLoss(k key, a *attempt) {
	q.mu.Lock()
	e := q.entries[k]
	holds := e != nil && e.last == a && e.granted() && !e.cancelled
	if holds {
		e.cancelled, e.last = true, nil
	}
	q.mu.Unlock()
	if holds {
		a.undo(false) // with a notice: waiters may get the rest of the nodes
	}
}

// find returns the last attempt of an acquisition, and keeps the acquisition in the table for ttl.
func (q *quorum) find(k key, ttl time.Duration) *attempt {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[k]
	if e == nil || e.last == nil {
		return q.unknownAttempt(k)
	}
	q.entry(k, ttl+copyLife(ttl))
	return e.last
}

// tokens returns the token of the grant; 0: none.
func (a *attempt) tokens() (token int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token
}

// grant notes the token of the grant, unless the attempt is over.
func (a *attempt) grant(token int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	a.token = token
	return true
}

// send asks a node for the name under a block of tokens, unless the attempt is over. A node that has
// not accepted is asked again some time after the grant: most of them have refused because of a
// Release that was under way. ⚑ A lease on a bare quorum would end with one node more.
func (a *attempt) send(p *poll, n *node, token int64) {
	switch {
	case n.full():
		p.answered(n, Reply{}, errFull, 0)
	case !a.sending(n, token+Block):
		p.note(n, answer{})
	default:
		req := a.req
		req.Token = token
		p.ask(n, func(ctx context.Context) (Reply, error) { return a.acquire(ctx, n, req) }, func(_ Reply, err error) {
			if err == nil && a.lacks(n, token) && sleep(a.q.life, min(completeAfter, a.req.TTL/4)) == nil {
				a.retake(n, a.req.TTL)
			}
		})
	}
}

// lacks reports whether a node has not accepted the grant under a token.
func (a *attempt) lacks(n *node, token int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.over && a.token == token && !a.votes[n.index].holds
}

// sending notes that an Acquire is under way, until the end of acquire. It reports false if the attempt
// is over.
func (a *attempt) sending(n *node, end int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	a.votes[n.index].pending++
	a.highest = max(a.highest, end)
	return true
}

// acquire asks a node that sending has noted, and notes the answer.
func (a *attempt) acquire(ctx context.Context, n *node, req Proposal) (Reply, error) {
	reply, err := n.Acquire(ctx, req)
	reply.State = ofGrant(reply.State)
	a.mu.Lock()
	v := &a.votes[n.index]
	late := driver.MayHaveEffect(err)
	v.holds = v.holds || late || err == nil && reply.Outcome == Granted
	v.acquireMayArrive = v.acquireMayArrive || late
	var then []func()
	if v.pending--; v.pending == 0 {
		then, v.afterAcquires = v.afterAcquires, nil
	}
	a.mu.Unlock()
	for _, f := range then {
		f()
	}
	return reply, err
}

// undo ends an attempt in the background, and returns the poll of the Releases. The undo of an attempt
// without a grant is quiet. ⚑ A notice would have all waiters ask again, and be undone again.
func (a *attempt) undo(quiet bool) *poll {
	a.finish()
	p := newPoll(a.q, context.Background(), limit(a.req.TTL))
	p.owes = true
	close(p.decided)
	a.release(p, driver.ReleaseRequest{}, quiet)
	return p
}

// finish ends the attempt: from now on no request but a Release is sent.
func (a *attempt) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// undoWait is how long an Acquire that fails waits for its undo.
const undoWait = 200 * time.Millisecond

// holdsAfter waits for an undo. It reports whether a quorum may still hold the name.
func (a *attempt) holdsAfter(ctx context.Context, undo *poll) (holds bool) {
	ctx, cancel := context.WithTimeout(ctx, undoWait)
	defer cancel()
	_ = undo.wait(ctx, func(answers []answer, _ bool) bool {
		holds = a.holders() >= a.q.size
		return !holds || !slices.ContainsFunc(answers, func(a answer) bool { return a.pending })
	})
	return holds
}

// holders is the number of nodes on which the attempt may hold the name.
func (a *attempt) holders() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		if v := &a.votes[i]; v.pending > 0 || v.holds {
			n++
		}
	}
	return n
}
