package quorum

import (
	"context"
	"errors"
	"sync"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Extend implements driver.Driver.
func (q *quorum) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	var all sync.WaitGroup
	for i, req := range reqs {
		all.Go(func() { replies[i].Held, replies[i].Err = q.extend(ctx, req) })
	}
	all.Wait()
	return replies
}

// extend prolongs one grant. A node that does not hold the grant is asked to accept it, too.
// ⚑ Not before the decision: a grant that is lost must not come back.
func (q *quorum) extend(ctx context.Context, req driver.ExtendRequest) (held bool, err error) {
	if err := q.check(ctx, req.TTL); err != nil {
		return false, err
	}
	k := key{req.Name, req.Owner}
	a := q.find(k, req.TTL)
	req.Owner = a.req.Owner
	p := newPoll(q, ctx, limit(req.TTL))
	defer close(p.decided)
	for _, n := range q.nodes {
		p.ask(n, func(ctx context.Context) (Reply, error) { return n.Extend(ctx, req) }, func(reply Reply, err error) {
			if err == nil && reply.Outcome == NotHeld {
				a.retake(n, req.TTL)
			}
		})
	}
	// ⚑ A young node does not count as held. A node that says "not held" counts in each case.
	agreed, effects, err := p.agree(ctx, false, func(a *answer) bool { return !a.young })
	switch {
	case err == nil && agreed == yes:
		return true, nil
	case err == nil && agreed == no: // ⚑ no request follows that could take it back
		q.noteLoss(k, a)
		return false, nil
	}
	return false, p.failure(err, effects > len(q.nodes)-q.size)
}

// Raise implements driver.Driver. A higher token that a minority of the nodes has does no harm.
func (q *quorum) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	if ctx.Err() != nil {
		return driver.RaiseReply{}, notDone(ctx)
	}
	k := key{req.Name, req.Owner}
	a := q.find(k, 0)
	token := a.tokens()
	keeps := token >= req.Floor // the nodes are asked whether it is held
	if !keeps {
		token = a.beginRaise(max(req.Floor, q.clock()))
	}
	p := newPoll(q, ctx, limit(a.req.TTL))
	defer close(p.decided)
	raise := driver.RaiseRequest{Name: req.Name, Owner: a.req.Owner, Floor: token}
	for _, n := range q.nodes {
		p.ask(n, func(ctx context.Context) (Reply, error) { return n.Raise(ctx, raise) }, nil)
	}
	agreed, effects, err := p.agree(ctx, false, func(a *answer) bool {
		return keeps || a.reply.Last == token+Block // else a re-take was sent later
	})
	if agreed == unknown || err != nil {
		err = p.failure(err, effects > len(q.nodes)-q.size || err != nil)
	}
	if !keeps {
		a.endRaise(token, err == nil && agreed == yes, err)
	}
	switch {
	case err != nil:
		return driver.RaiseReply{}, err
	case agreed == no:
		q.noteLoss(k, a)
		return driver.RaiseReply{}, nil
	}
	q.noteToken(req.Name, token+Block)
	return driver.RaiseReply{Held: true, Fence: token, FenceEnd: token + Block}, nil
}

// beginRaise returns a token of at least floor for a Raise. ⚑ It is above all tokens that a node may
// have for the attempt: a waiter may have seen one of them.
func (a *attempt) beginRaise(floor int64) (token int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raises++
	return max(floor, a.highest+1)
}

// endRaise notes the tokens of a Raise. A node may have them, unless they are too far ahead. Of two
// Raises that succeed the higher one counts.
func (a *attempt) endRaise(token int64, raised bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raises--
	if !errors.Is(err, driver.ErrFloor) {
		a.highest = max(a.highest, token+Block)
	}
	if raised {
		a.token = max(a.token, token)
	}
}
