package quorum

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Release implements driver.Driver.
func (q *quorum) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	if ctx.Err() != nil {
		return driver.ReleaseReply{}, notDone(ctx)
	}
	k := key{req.Name, req.Owner}
	a, released, quiet := q.ending(k, req.Tombstone)
	if a == nil {
		return driver.ReleaseReply{Released: released}, nil
	}
	a.finish(false)
	req.Leave, req.Quiet = false, req.Quiet || quiet
	p := newPoll(q, ctx, limit(a.req.TTL), releaseWord)
	defer p.done()
	for _, n := range q.nodes {
		a.release(p, n, req)
	}
	var agreed agreement
	var effect bool
	err := p.wait(ctx, func(answers []answer[driver.ReleaseReply], _ bool) bool {
		agreed = judgeRelease(answers, q.size)
		effect = mayRelease(answers, a.holding(), q.size)
		return agreed != awaiting
	})
	switch {
	case err == nil && (agreed == yes || agreed == no):
		a.owe()
		q.ended(k, a, agreed == yes, req.Tombstone)
		return driver.ReleaseReply{Released: agreed == yes}, nil
	case err == nil && !effect: // ⚑ the caller knows that nothing was done, so nothing follows
		a.resume()
		q.resumed(k)
	default:
		a.owe()
	}
	return driver.ReleaseReply{}, p.failure(err, effect || err != nil)
}

// judgeRelease decides on the answers to a Release.
func judgeRelease(answers []answer[driver.ReleaseReply], size int) agreement {
	var yeses, noes, open int
	for i := range answers {
		switch a := &answers[i]; {
		case a.pending:
			open++
		case !a.replied():
		case a.reply.Released:
			yeses++
		case !a.reply.Replayed: // ⚑ else an earlier copy may have released it
			noes++
		}
	}
	if agreed := agree(yeses, noes, open, len(answers), size); agreed != unknown || open == 0 {
		return agreed
	}
	return awaiting // what becomes of the grant shows when all have answered
}

// mayRelease reports whether a Release without a decision may have had an effect. holding are the
// nodes that have accepted. ⚑ If a quorum of them has refused the Release, they still hold the
// name.
func mayRelease(answers []answer[driver.ReleaseReply], holding []bool, size int) bool {
	holds, effect := 0, false
	for i := range answers {
		switch a := &answers[i]; {
		case a.pending, driver.MayHaveEffect(a.err), a.reply.Released, a.reply.Replayed:
			effect = true
		case a.err != nil && holding[i]:
			holds++
		}
	}
	return effect && holds < size
}

// ending returns the attempt to release. It returns nil and the stored reply if the acquisition was
// released before. quiet says that the acquisition was not granted.
func (q *quorum) ending(k key, tombstone time.Duration) (a *attempt, released, quiet bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(k, max(tombstone, unused))
	e.over = e.over || e.granted || tombstone > 0
	if e.ended {
		return nil, e.released, false
	}
	inherited := e.last == nil
	if inherited {
		e.last = q.newAttempt(driver.AcquireRequest{Name: k.name, Owner: k.owner, TTL: callLimit}, 0)
	}
	if e.granted || inherited { // ⚑ each vote is that of a node
		e.last.asksAll(inherited)
	}
	return e.last, false, !e.granted && !inherited
}

// ended notes the reply to a Release.
func (q *quorum) ended(k key, a *attempt, released bool, tombstone time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[k]
	if e == nil || e.last != a || !e.over {
		return
	}
	e.ended, e.released, e.last = true, released, nil
	if tombstone == 0 {
		q.sweptSoon(e, ended)
	}
}

// resumed notes that a Release has had no effect.
func (q *quorum) resumed(k key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[k]; e != nil {
		e.over = false
	}
}

// asksAll makes the Release ask all nodes. inherited says that the nodes may know the attempt by
// another driver.
func (a *attempt) asksAll(inherited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.releaseAll, a.inherited = true, a.inherited || inherited
}

func (a *attempt) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = false
	for i := range a.votes {
		a.votes[i].unanswered = nil
	}
}

// release asks a node to end the attempt. The request has a tombstone if req has one, or if a copy
// of an Acquire may arrive later. A node that needs no Release gets none.
// ⚑ It waits for the end of the Acquire that is under way: it must not overtake the Acquire.
func (a *attempt) release(p *poll[driver.ReleaseReply], n *node, req driver.ReleaseRequest) {
	p.expect(n)
	a.mu.Lock()
	v := &a.votes[n.index]
	if v.pending > 0 {
		v.then = append(v.then, func() {
			a.releaseNow(p, n, req, func(call func(context.Context) (driver.ReleaseReply, error)) { p.call(n, call) })
		})
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	a.releaseNow(p, n, req, func(call func(context.Context) (driver.ReleaseReply, error)) { p.ask(n, call, nil) })
}

// releaseNow makes the call by the given function.
func (a *attempt) releaseNow(p *poll[driver.ReleaseReply], n *node, req driver.ReleaseRequest,
	ask func(func(context.Context) (driver.ReleaseReply, error))) {
	a.mu.Lock()
	v := &a.votes[n.index]
	needs, released, known := a.needs(v), v.released, v.sent || a.inherited
	if v.copies {
		req.Tombstone = max(req.Tombstone, copyLife(a.req.TTL))
	}
	a.mu.Unlock()
	if !needs {
		p.note(n, answer[driver.ReleaseReply]{done: true, reply: driver.ReleaseReply{Released: released}})
		return
	}
	if !known && n.silent() { // ⚑ else each lease would send it a call that hangs, too
		p.note(n, answer[driver.ReleaseReply]{done: true, err: errAway})
		return
	}
	req.Name, req.Owner = a.req.Name, a.req.Owner
	ask(func(ctx context.Context) (driver.ReleaseReply, error) {
		reply, err := n.Driver.Release(ctx, req)
		a.released(n, req, reply, err)
		return reply, err
	})
}

// released notes the answer to a Release.
func (a *attempt) released(n *node, req driver.ReleaseRequest, reply driver.ReleaseReply, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[n.index]
	if err == nil {
		v.settled, v.released, v.unanswered = true, reply.Released, nil
		return
	}
	if !v.holds && !v.copies && !v.midway {
		return // the node has nothing to release
	}
	if v.unanswered = &req; a.resends {
		a.oweLocked(n)
	}
}

// owe sends the unanswered Releases again, also those that fail later.
func (a *attempt) owe() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resends = true
	for _, n := range a.q.nodes {
		a.oweLocked(n)
	}
}

func (a *attempt) oweLocked(n *node) {
	if v := &a.votes[n.index]; v.unanswered != nil && !v.settled {
		a.q.owe(n, owedRelease{a, *v.unanswered, time.Now().Add(copyLife(a.req.TTL))})
		v.unanswered = nil
	}
}

func releaseWord(reply driver.ReleaseReply) string {
	if reply.Released {
		return "released"
	}
	return "not held"
}
