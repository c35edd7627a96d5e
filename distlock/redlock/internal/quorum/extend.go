package quorum

import (
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock/driver"
)

var errLateExact = errors.New("an exact extend may yet shorten the grant on this node")

// Extend implements driver.Driver.
func (q *quorum) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	if len(reqs) == 0 {
		return replies
	}
	ttl := reqs[0].TTL
	for i := range reqs {
		ttl = max(ttl, reqs[i].TTL)
	}
	if err := q.check(ctx, ttl); err != nil {
		for i := range replies {
			replies[i].Err = err
		}
		return replies
	}
	x := &extension{reqs: make([]driver.ExtendRequest, len(reqs)), attempts: make([]*attempt, len(reqs))}
	for i, req := range reqs {
		x.attempts[i] = q.find(key{req.Name, req.Owner}, req.TTL)
		x.reqs[i] = req
		x.reqs[i].Owner = x.attempts[i].req.Owner
	}
	p := newPoll(q, ctx, limit(ttl), extendWord)
	defer close(p.decided)
	for _, n := range q.nodes {
		p.expect(n)
		// ⚑ Before another Extend can be sent: this one may be the later one at the node.
		counts := x.extending(n)
		var replies []driver.ExtendReply
		p.ask(n, func(ctx context.Context) (_ []driver.ExtendReply, err error) {
			replies, err = x.send(ctx, n, counts)
			return replies, err
		}, func() { x.retake(n, replies) })
	}
	err := p.wait(ctx, func(answers []answer[[]driver.ExtendReply], _ bool) bool {
		for i := range reqs {
			if agreed, _ := judgeExtend(answers, i, q.size, reqs[i].Exact); agreed == awaiting {
				return false
			}
		}
		return true
	})
	for i := range reqs {
		p.mu.Lock()
		agreed, effect := judgeExtend(p.answers, i, q.size, reqs[i].Exact)
		p.mu.Unlock()
		switch agreed {
		case yes:
			replies[i].Held = true
		case no: // ⚑ no request follows that could take it back
			q.noteLoss(key{reqs[i].Name, reqs[i].Owner}, x.attempts[i])
		default:
			replies[i].Err = x.failure(p, i, err, effect)
		}
	}
	return replies
}

// extension is the requests of one Extend.
type extension struct {
	attempts []*attempt
	reqs     []driver.ExtendRequest // with the owners that the nodes see
}

// send asks a node to extend all grants. The error of a node that has answered no request is that
// of the first.
func (x *extension) send(ctx context.Context, n *node, counts []bool) ([]driver.ExtendReply, error) {
	replies := n.Extend(ctx, x.reqs)
	answered := false
	for i, a := range x.attempts {
		if a.extended(n, x.reqs[i].Exact, replies[i].Err); replies[i].Held && !counts[i] {
			replies[i] = driver.ExtendReply{Err: errLateExact}
		}
		answered = answered || replies[i].Err == nil
	}
	if !answered {
		return nil, replies[0].Err
	}
	return replies, nil
}

// extending notes that the requests are under way to a node. It reports which answers count.
func (x *extension) extending(n *node) (counts []bool) {
	counts = make([]bool, len(x.reqs))
	for i, a := range x.attempts {
		counts[i] = a.extending(n, x.reqs[i].Exact)
	}
	return counts
}

// extending notes that an Extend is under way. It reports whether its answer counts.
// ⚑ An exact Extend without an answer may arrive at the node after this one, and shorten the grant.
func (a *attempt) extending(n *node, exact bool) (counts bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[n.index]
	counts = v.exactCalls == 0 && !v.exactLost
	if exact {
		v.exactCalls++
	}
	return counts
}

// extended notes the end of an Extend.
func (a *attempt) extended(n *node, exact bool, err error) {
	if !exact {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[n.index]
	v.exactCalls--
	v.exactLost = v.exactLost || driver.MayHaveEffect(err)
}

// judgeExtend decides on the answers to one request, and whether the request may have had an
// effect.
// ⚑ A young node does not count as held. A node that says "not held" counts in each case.
func judgeExtend(answers []answer[[]driver.ExtendReply], request, size int, exact bool) (agreed agreement, effect bool) {
	var yeses, noes, open, effects int
	for i := range answers {
		a := &answers[i]
		err := a.err
		if a.replied() {
			err = a.reply[request].Err
		}
		switch {
		case a.pending:
			open++
			effects++
		case err != nil:
			if driver.MayHaveEffect(err) || exact && !errors.Is(err, driver.ErrNotDone) {
				effects++
			}
		case !a.reply[request].Held:
			noes++
		default:
			if effects++; !a.young {
				yeses++
			}
		}
	}
	// ⚑ An exact one may have shortened the grant on a few nodes.
	effect = effects > len(answers)-size || exact && effects > 0
	return agree(yeses, noes, open, len(answers), size), effect
}

// failure makes the error of one request.
func (x *extension) failure(p *poll[[]driver.ExtendReply], request int, ended error, effect bool) error {
	return p.failureOf(ended, effect, func(a *answer[[]driver.ExtendReply]) (cause error) {
		if a.replied() {
			return a.reply[request].Err
		}
		return a.err
	})
}

// retake has a node accept the grants that it does not hold.
// ⚑ Not before the decision: a grant that is lost must not come back.
func (x *extension) retake(n *node, replies []driver.ExtendReply) {
	for i, reply := range replies {
		if !reply.Held && reply.Err == nil {
			x.attempts[i].retake(n, x.reqs[i].TTL)
		}
	}
}

func extendWord(replies []driver.ExtendReply) string {
	held := 0
	for i := range replies {
		if replies[i].Held {
			held++
		}
	}
	switch {
	case held == len(replies):
		return "held"
	case held == 0:
		return "not held"
	default:
		return fmt.Sprintf("%d of %d held", held, len(replies))
	}
}
