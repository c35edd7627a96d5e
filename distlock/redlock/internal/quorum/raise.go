package quorum

import (
	"context"
	"errors"

	"github.com/belugalock/belugalock/distlock/driver"
)

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
		defer a.endRaise()
	}
	p := newPoll(q, ctx, limit(a.req.TTL))
	defer close(p.decided)
	exact := driver.RaiseRequest{Name: req.Name, Owner: a.req.Owner, Floor: token}
	for _, n := range q.nodes {
		p.expect(n)
		p.ask(n, func(ctx context.Context) (Reply, error) { return n.Raise(ctx, exact) }, nil)
	}
	agreed, effects, err := p.agree(ctx, false, func(a *answer) bool {
		return keeps || a.reply.Last == token+Block // else a re-take was sent later
	})
	if agreed == unknown || err != nil {
		err = p.failure(err, effects > len(q.nodes)-q.size || err != nil)
	}
	if !errors.Is(err, driver.ErrFloor) {
		a.mayHave(token + Block)
	}
	switch {
	case err != nil:
		return driver.RaiseReply{}, err
	case agreed == no:
		q.noteLoss(k, a)
		return driver.RaiseReply{}, nil
	case !keeps:
		a.setTokens(token)
		q.noteToken(req.Name, token+Block)
	}
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

// endRaise follows the change of the tokens.
func (a *attempt) endRaise() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raises--
}

// mayHave notes that a node may have the tokens up to end for the attempt.
func (a *attempt) mayHave(end int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.highest = max(a.highest, end)
}
