package quorum

import (
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock/driver"
)

var errRaise = fmt.Errorf("redlock: %w: other requests raise the tokens of the nodes", driver.ErrTemporary)

// Raise implements driver.Driver. A higher token that a minority of the nodes has does no harm.
func (q *quorum) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	if ctx.Err() != nil {
		return driver.RaiseReply{}, notDone(ctx)
	}
	a := q.find(key{req.Name, req.Owner}, 0)
	token, end := a.tokens()
	kept := driver.RaiseReply{Held: true, Fence: token, FenceEnd: end}
	keeps := token >= req.Floor // the nodes are asked whether it is held
	if !keeps {
		token = a.aboveAll(max(req.Floor, q.now()))
	}
	for range mostProposals {
		p := newPoll(q, ctx, limit(a.req.TTL), raiseWord)
		exact := driver.RaiseRequest{Name: req.Name, Owner: a.req.Owner, Floor: token, FenceEnd: token + block}
		for _, n := range q.nodes {
			p.expect(n)
			p.ask(n, func(ctx context.Context) (driver.RaiseReply, error) { return n.Driver.Raise(ctx, exact) }, nil)
		}
		var j raised
		err := p.wait(ctx, func(answers []answer[driver.RaiseReply], _ bool) bool {
			j = judgeRaise(answers, token, keeps, q.size)
			return j.agreed != awaiting
		})
		if j.agreed == unknown || err != nil {
			err = p.failure(err, j.effect || err != nil)
		}
		p.done()
		if !errors.Is(err, driver.ErrFloor) {
			a.mayHave(token + block)
		}
		switch {
		case err != nil:
			return driver.RaiseReply{}, err
		case j.agreed == no:
			q.lost(key{req.Name, req.Owner}, a)
			return driver.RaiseReply{}, nil
		case keeps:
			return kept, nil
		case j.higher == 0:
			a.setTokens(token)
			q.proposed(req.Name, token+block)
			return driver.RaiseReply{Held: true, Fence: token, FenceEnd: token + block}, nil
		}
		token = a.aboveAll(max(j.higher+1, q.now()))
	}
	return driver.RaiseReply{}, errRaise
}

// aboveAll returns a token of at least floor for a raise. ⚑ It is above all tokens that a node may
// have for the attempt: a waiter may have seen one of them.
func (a *attempt) aboveAll(floor int64) (token int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(floor, a.highest+1)
}

// mayHave notes that a node may have the tokens up to end for the attempt.
func (a *attempt) mayHave(end int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.highest = max(a.highest, end)
}

// raised is what the answers to a Raise mean. If higher is not 0, a quorum can agree to a token
// above it.
type raised struct {
	agreed agreement
	effect bool // on more nodes than do no harm
	higher int64
}

// judgeRaise decides on the answers to a Raise to a token, or to one that keeps the tokens of the
// grant.
func judgeRaise(answers []answer[driver.RaiseReply], token int64, keeps bool, size int) (j raised) {
	var yeses, others, noes, open, effects int
	var last int64
	for i := range answers {
		a := &answers[i]
		switch {
		case a.pending:
			open++
			effects++
		case a.err != nil:
			if driver.MayHaveEffect(a.err) {
				effects++
			}
		case !a.reply.Held:
			noes++
		default:
			effects++
			if last = max(last, a.reply.FenceEnd); a.young {
				continue
			}
			if keeps || a.reply.Fence == token && a.reply.FenceEnd == token+block {
				yeses++
			} else {
				others++
			}
		}
	}
	j.effect = effects > len(answers)-size
	j.agreed = agree(yeses, noes, open, len(answers), size)
	if j.agreed != yes && j.agreed != no && yeses+open < size && yeses+others >= size {
		j.agreed, j.higher = yes, last
	}
	return j
}

func raiseWord(reply driver.RaiseReply) string {
	if reply.Held {
		return "held"
	}
	return "not held"
}
