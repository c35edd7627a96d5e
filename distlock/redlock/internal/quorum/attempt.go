package quorum

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// attempt is one try of an acquisition, and its grant.
type attempt struct {
	q   *quorum
	req driver.AcquireRequest // as the nodes see it, without tokens

	mu         sync.Mutex
	token, end int64                      // of the grant
	highest    int64                      // the highest token that a node may have for the attempt
	releaseAll bool                       // each node needs a Release, also one that has refused
	inherited  bool                       // the nodes may know it by another driver
	over       bool                       // no request follows but a Release
	resends    bool                       // an unanswered Release is owed
	undoing    *poll[driver.ReleaseReply] // the Releases of the undo
	complete   *time.Timer                // has all nodes accept the grant
	votes      []vote                     // by node
}

// vote is the state of an attempt on one node.
type vote struct {
	pending int      // Acquires under way
	then    []func() // called after the last of them
	sent    bool     // the node may know the attempt
	holds   bool     // it has granted the name, or may have
	copies  bool     // a copy of an Acquire may arrive later
	midway  bool     // the node may have refused in the middle of a script

	settled    bool                   // a Release was answered
	released   bool                   // the answer to it
	unanswered *driver.ReleaseRequest // the Release that got no answer

	exactCalls int  // exact Extends under way
	exactLost  bool // an exact Extend may arrive later
}

// newAttempt makes an attempt of an acquisition.
func (q *quorum) newAttempt(req driver.AcquireRequest, number int) *attempt {
	return &attempt{q: q, votes: make([]vote, len(q.nodes)), req: driver.AcquireRequest{
		Name: req.Name, Owner: nodeOwner(req.Owner, number), TTL: req.TTL,
		Holder: req.Holder, Metadata: maps.Clone(req.Metadata),
	}}
}

// begin makes an attempt of an acquisition, or returns the attempt that holds the name. It returns
// nil if the acquisition is over.
func (q *quorum) begin(k key, req driver.AcquireRequest) (a *attempt, holds bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(k, unused)
	switch {
	case e.over:
		return nil, false
	case !e.granted:
		q.attempts++
		e.last = q.newAttempt(req, q.attempts)
	}
	return e.last, e.granted
}

// granted notes the grant of an attempt. It reports false if the acquisition is over.
func (q *quorum) granted(k key, a *attempt, token int64) bool {
	q.proposed(k.name, token+block)
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(k, a.req.TTL+copyLife(a.req.TTL))
	if e.over || e.last != a {
		return false
	}
	e.granted = a.setTokens(token)
	return e.granted
}

// refused notes that an attempt was refused.
func (q *quorum) refused(k key, a *attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[k]; e != nil && e.last == a {
		e.last = nil // ⚑ its undo goes on without the table
		q.sweptSoon(e, unused)
	}
}

// lost notes that the grant of an attempt is lost, and undoes the attempt on the nodes that still
// have it: no Release follows.
func (q *quorum) lost(k key, a *attempt) {
	q.mu.Lock()
	e := q.entries[k]
	holds := e != nil && e.last == a && e.granted && !e.over
	if holds {
		e.over, e.ended, e.last = true, true, nil
	}
	q.mu.Unlock()
	if holds {
		a.undoBy(driver.ReleaseRequest{}) // with a notice: waiters may get the rest of the nodes
	}
}

// find returns the last attempt of an acquisition, and keeps the acquisition in the table for ttl.
func (q *quorum) find(k key, ttl time.Duration) *attempt {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[k]
	if e == nil || e.last == nil {
		return q.newAttempt(driver.AcquireRequest{Name: k.name, Owner: k.owner, TTL: callLimit}, 0)
	}
	q.entry(k, ttl+copyLife(ttl))
	return e.last
}

func (a *attempt) tokens() (token, end int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token, a.end
}

// setTokens notes the tokens of the grant, unless the attempt is over.
func (a *attempt) setTokens(token int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	a.token, a.end = token, token+block
	a.highest = max(a.highest, a.end)
	return true
}

// send asks a node for the name under a block of tokens, unless the attempt is over.
func (a *attempt) send(p *poll[driver.AcquireReply], n *node, token, end int64) {
	p.expect(n)
	switch {
	case n.full():
		p.answered(n, driver.AcquireReply{}, errFull, 0)
		return
	case !a.sending(n, end):
		p.note(n, answer[driver.AcquireReply]{})
		return
	}
	p.ask(n, func(ctx context.Context) (driver.AcquireReply, error) {
		req := a.req
		req.Fence, req.FenceEnd = token, end
		return a.acquire(ctx, n, req)
	}, func() { a.sent(n) })
}

// sending notes that an Acquire is under way, until a call of sent. It reports false if the attempt
// is over.
func (a *attempt) sending(n *node, end int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.votes[n.index].pending++
		a.highest = max(a.highest, end)
	}
	return !a.over
}

// sent notes the end of an Acquire, and calls the functions that wait for it.
func (a *attempt) sent(n *node) {
	a.mu.Lock()
	v := &a.votes[n.index]
	var then []func()
	if v.pending--; v.pending == 0 {
		then, v.then = v.then, nil
	}
	a.mu.Unlock()
	for _, f := range then {
		f()
	}
}

// acquire asks a node, and notes the answer.
func (a *attempt) acquire(ctx context.Context, n *node, req driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := n.Driver.Acquire(ctx, req)
	granted := err == nil && reply.Outcome == driver.Granted
	if err == nil {
		n.sawClock(reply.Clock)
		a.q.seeTTL(reply.State.TTL)
	}
	a.mu.Lock()
	v := &a.votes[n.index]
	v.sent = v.sent || !errors.Is(err, driver.ErrNotDone)
	if granted || driver.MayHaveEffect(err) {
		v.holds, v.settled = true, false
	}
	v.copies = v.copies || reply.Replayed || driver.MayHaveEffect(err) || errors.Is(err, driver.ErrReplayed)
	v.midway = v.midway || refusedMidway(err)
	a.mu.Unlock()
	if granted && (reply.Fence != req.Fence || reply.FenceEnd != req.FenceEnd) {
		return reply, errToken // ⚑ it counts for the proposed token only
	}
	return reply, err
}

// undoWait is how long an Acquire that fails waits for its undo.
const undoWait = 200 * time.Millisecond

// undo ends an attempt without a grant, in the background. It returns the poll of the Releases;
// nil: no node needs one.
func (a *attempt) undo() *poll[driver.ReleaseReply] {
	// ⚑ A notice would have all waiters ask again, and be undone again.
	return a.undoBy(driver.ReleaseRequest{Quiet: true})
}

func (a *attempt) undoBy(req driver.ReleaseRequest) *poll[driver.ReleaseReply] {
	if !a.finish(true) || a.undoing != nil {
		return a.undoing
	}
	p := newPoll(a.q, context.Background(), limit(a.req.TTL), releaseWord)
	defer p.done()
	a.undoing = p
	for _, n := range a.q.nodes {
		a.release(p, n, req)
	}
	return p
}

// undone is undo. It waits until fewer than a quorum of nodes can hold the name, and reports
// whether a quorum may still hold it.
func (a *attempt) undone(ctx context.Context) (holds bool) {
	p := a.undo()
	if p == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, undoWait)
	defer cancel()
	_ = p.wait(ctx, func(answers []answer[driver.ReleaseReply], _ bool) bool {
		open := slices.ContainsFunc(answers, func(a answer[driver.ReleaseReply]) bool { return a.pending })
		holds = a.holders() >= a.q.size
		return !holds || !open
	})
	return holds
}

// finish ends the attempt: from now on no request but a Release is sent. owed says that a Release
// without an answer is owed. It reports whether a node needs a Release.
func (a *attempt) finish(owed bool) (needed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over, a.resends = true, a.resends || owed
	if a.complete != nil {
		a.complete.Stop()
	}
	for i := range a.votes {
		needed = needed || a.votes[i].pending > 0 || a.needs(&a.votes[i])
	}
	return needed
}

// needs reports whether a node needs a Release. ⚑ So does a node that has refused a request that
// was sent twice.
func (a *attempt) needs(v *vote) bool {
	return !v.settled && (v.holds || v.copies || v.midway || a.releaseAll)
}

// holders is the number of nodes on which the attempt may hold the name.
func (a *attempt) holders() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		if v := &a.votes[i]; v.pending > 0 || v.holds && !v.settled {
			n++
		}
	}
	return n
}

// holding are the nodes on which the attempt may hold the name.
func (a *attempt) holding() []bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	holding := make([]bool, len(a.votes))
	for i := range a.votes {
		holding[i] = a.votes[i].holds
	}
	return holding
}
