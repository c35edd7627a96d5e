package quorum

import (
	"context"
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
		token = req.Floor
		if end > 0 {
			token = q.token(req.Name, max(req.Floor, end+1))
		}
	}
	for range mostProposals {
		p := newPoll(q, ctx, limit(a.req.TTL), raiseWord)
		exact := driver.RaiseRequest{Name: req.Name, Owner: a.req.Owner, Floor: token, FenceEnd: token + block}
		for _, n := range q.nodes {
			p.expect(n)
			p.ask(n, func(ctx context.Context) (driver.RaiseReply, error) { return n.Driver.Raise(ctx, exact) }, nil)
		}
		var j raised
		err := p.wait(ctx, func(answers []answer[driver.RaiseReply], final bool) bool {
			j = judgeRaise(answers, token, keeps, q.size, final)
			return j.agreed != unsure
		})
		if j.agreed == unknown || err != nil {
			err = p.failure(err, j.effect || err != nil)
		}
		p.done()
		switch {
		case err != nil:
			return driver.RaiseReply{}, err
		case j.agreed == no:
			return driver.RaiseReply{}, nil
		case keeps:
			return kept, nil
		case j.higher == 0:
			a.setTokens(token)
			q.saw(req.Name, token+block)
			return driver.RaiseReply{Held: true, Fence: token, FenceEnd: token + block}, nil
		}
		token = q.token(req.Name, j.higher+1)
	}
	return driver.RaiseReply{}, errRaise
}

// raised is what the answers to a Raise mean. If higher is not 0, a quorum can agree to a token above it.
type raised struct {
	agreed agreement
	effect bool
	higher int64
}

// judgeRaise decides on the answers to a Raise to a token, or to one that keeps the tokens of the grant.
func judgeRaise(answers []answer[driver.RaiseReply], token int64, keeps bool, size int, final bool) (j raised) {
	var yeses, others, noes, open int
	var last int64
	for i := range answers {
		a := &answers[i]
		switch {
		case a.pending:
			j.effect = true
			if !final {
				open++
			}
		case a.err != nil:
			j.effect = j.effect || driver.MayHaveEffect(a.err)
		case !a.reply.Held:
			noes++
		default:
			j.effect = true
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
	j.agreed = agree(yeses, noes, open, len(answers), size)
	if (j.agreed == unknown || j.agreed == unsure && yeses+open < size) && yeses+others >= size {
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
