package quorum

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// forgetAfter is how long the driver remembers an acquisition that was released on all nodes.
const forgetAfter = 10 * time.Second

// Release implements driver.Driver.
func (q *quorum) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	if ctx.Err() != nil {
		return driver.ReleaseReply{}, notDone(ctx)
	}
	k := key{req.Name, req.Owner}
	a, released := q.ending(k, req.Tombstone)
	if a == nil {
		return driver.ReleaseReply{Released: released}, nil
	}
	a.finish(false)
	p := newPoll(q, ctx, limit(a.req.TTL), releaseWord)
	defer p.done()
	for _, n := range q.nodes {
		a.release(p, n, req.Tombstone)
	}
	var agreed agreement
	var effect, replayed bool
	err := p.wait(ctx, func(answers []answer[driver.ReleaseReply], final bool) bool {
		agreed, effect, replayed = judgeRelease(answers, q.size, final)
		return agreed != unsure
	})
	switch {
	case err == nil && (agreed == yes || agreed == no):
		a.owe()
		q.ended(k, a, agreed == yes, req.Tombstone)
		return driver.ReleaseReply{Released: agreed == yes, Replayed: replayed}, nil
	case err == nil && !effect: // ⚑ the caller knows that nothing was done, so nothing follows
		a.resume()
		q.resumed(k)
	default:
		a.owe()
	}
	return driver.ReleaseReply{}, p.failure(err, effect || err != nil)
}

// judgeRelease decides on the answers to a Release, and whether the Release may have had an effect, or
// was sent twice.
func judgeRelease(answers []answer[driver.ReleaseReply], size int, final bool) (agreed agreement, effect, replayed bool) {
	var yeses, noes, open int
	for i := range answers {
		switch a := &answers[i]; {
		case a.pending:
			effect = true
			if !final {
				open++
			}
		case a.err != nil:
			effect = effect || driver.MayHaveEffect(a.err)
		case a.reply.Released:
			yeses, effect = yeses+1, true
		default:
			noes++
			replayed = replayed || a.reply.Replayed
		}
	}
	return agree(yeses, noes, open, len(answers), size), effect, replayed
}

// ending returns the attempt to release; nil: the acquisition was released before, with the reply that
// follows.
func (q *quorum) ending(k key, tombstone time.Duration) (a *attempt, released bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(k, keep(tombstone))
	if e.ended {
		return nil, e.released
	}
	if e.last == nil { // ⚑ another driver may have sent its first attempt
		e.number = 1
		e.last = q.newAttempt(driver.AcquireRequest{Name: k.name, Owner: k.owner, TTL: longest}, 1)
		e.last.blind = true
	}
	e.over = e.over || e.granted || tombstone > 0
	return e.last, false
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
		e.until = time.Now().Add(forgetAfter)
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

func (a *attempt) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = false
	for i := range a.votes {
		a.votes[i].unpaid = nil
	}
}

// release asks a node to end the attempt, with a tombstone if the caller wants one, or if a copy of an
// Acquire may arrive later. A node that needs no Release gets none.
// ⚑ It waits for the answer to the Acquire that is under way: it must not overtake the Acquire.
func (a *attempt) release(p *poll[driver.ReleaseReply], n *node, tombstone time.Duration) {
	p.expect(n)
	a.mu.Lock()
	v := &a.votes[n.index]
	if v.pending > 0 {
		v.then = append(v.then, func() { a.releaseNow(p, n, tombstone, p.call) })
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	a.releaseNow(p, n, tombstone, func(n *node, call func(context.Context) (driver.ReleaseReply, error)) {
		p.ask(n, call, nil)
	})
}

// releaseNow makes the call by the given function.
func (a *attempt) releaseNow(p *poll[driver.ReleaseReply], n *node, tombstone time.Duration,
	ask func(*node, func(context.Context) (driver.ReleaseReply, error))) {
	a.mu.Lock()
	v := &a.votes[n.index]
	needs, released := a.needs(v), v.released
	if v.copies {
		tombstone = max(tombstone, keep(a.req.TTL))
	}
	a.mu.Unlock()
	if !needs {
		p.answered(n, driver.ReleaseReply{Released: released}, nil, 0)
		return
	}
	req := driver.ReleaseRequest{Name: a.req.Name, Owner: a.req.Owner, Tombstone: tombstone}
	ask(n, func(ctx context.Context) (driver.ReleaseReply, error) {
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
		v.settled, v.released, v.unpaid = true, reply.Released, nil
		return
	}
	if v.unpaid = &req; a.owes {
		a.oweLocked(n)
	}
}

// owe has the Releases that got no answer sent again, also those that fail later.
func (a *attempt) owe() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owes = true
	for _, n := range a.q.nodes {
		a.oweLocked(n)
	}
}

func (a *attempt) oweLocked(n *node) {
	if v := &a.votes[n.index]; v.unpaid != nil && !v.settled {
		a.q.owe(n, debt{a, *v.unpaid, time.Now().Add(keep(a.req.TTL))})
		v.unpaid = nil
	}
}

func releaseWord(reply driver.ReleaseReply) string {
	if reply.Released {
		return "released"
	}
	return "not held"
}
