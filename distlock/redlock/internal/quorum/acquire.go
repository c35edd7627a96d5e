package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// mostProposals bounds the tokens that an attempt proposes.
	mostProposals = 10
	// mostRounds bounds how often an attempt asks the refusing nodes again in a split vote.
	mostRounds = 10
)

// Acquire implements driver.Driver. Each call is an attempt with a node owner of its own, unless the
// owner holds the name already. An attempt that does not get the name is undone.
func (q *quorum) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := q.check(ctx, req.TTL); err != nil {
		return driver.AcquireReply{}, err
	}
	k := key{req.Name, req.Owner}
	a, holds := q.begin(k, req)
	switch {
	case a == nil:
		return driver.AcquireReply{Outcome: driver.Cancelled}, nil
	case holds:
		return q.acquireAgain(ctx, a, req)
	}
	token := q.token(req.Name, 1)
	for range mostProposals {
		p := newPoll(q, ctx, limit(req.TTL), acquireWord)
		d, err := a.propose(ctx, p, token)
		reply := q.busyReply(p)
		q.saw(req.Name, reply.Last)
		switch {
		case err != nil: // the caller has left
			a.undo()
			err = p.failure(err, true)
		case d == higher:
			// ⚑ Above the own block, too: a node may yet accept the lower token.
			token = q.token(req.Name, max(reply.Last, token+block)+1)
			p.done()
			continue
		case d == granted && q.granted(k, a, token):
			reply = driver.AcquireReply{Outcome: driver.Granted, Fence: token, FenceEnd: token + block,
				Last: token + block, Clock: reply.Clock}
		case d == failed:
			err = p.failure(nil, a.undone(ctx))
		case d == granted, d == void:
			a.undo()
			reply = driver.AcquireReply{Outcome: driver.Cancelled}
		default:
			a.undo()
		}
		p.done()
		if err != nil {
			return driver.AcquireReply{}, err
		}
		return reply, nil
	}
	a.undo()
	return driver.AcquireReply{State: unknownHolder(), Nodes: len(q.nodes)}, nil
}

// check refuses a call before it begins.
func (q *quorum) check(ctx context.Context, ttl time.Duration) error {
	if ctx.Err() != nil {
		return notDone(ctx)
	}
	if q.restartDelay > 0 && ttl > q.restartDelay {
		return fmt.Errorf("redlock: %w: the TTL of %s is longer than the restart delay of %s; set a longer delay in all processes",
			driver.ErrNotDone, ttl, q.restartDelay)
	}
	q.seeTTL(ttl)
	return nil
}

// propose asks all nodes to grant the name under a token. ⚑ In a split vote one attempt goes on: it
// keeps what it has, and asks the refusing nodes again while the others are undone.
func (a *attempt) propose(ctx context.Context, p *poll[driver.AcquireReply], token int64) (d decision, err error) {
	for _, n := range a.q.nodes {
		a.send(p, n, token, token+block)
	}
	for round := 0; ; round++ {
		err = p.wait(ctx, func(answers []answer[driver.AcquireReply], final bool) bool {
			d = judge(answers, a.q.size, final)
			return d != undecided
		})
		if err != nil || d != goOn || round == mostRounds {
			return d, err
		}
		timer := time.NewTimer(time.Millisecond + rand.N(2*time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return d, ctx.Err()
		}
		for _, n := range a.q.refusing(p) {
			a.send(p, n, token, token+block)
		}
	}
}

// refusing returns the nodes that another attempt holds.
func (q *quorum) refusing(p *poll[driver.AcquireReply]) (nodes []*node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.answers {
		if a := &p.answers[i]; !a.pending && a.said() && a.reply.Outcome == driver.Busy {
			nodes = append(nodes, q.nodes[i])
		}
	}
	return nodes
}

// acquireAgain answers an owner that holds the name: the grant has at least the TTL from now on.
func (q *quorum) acquireAgain(ctx context.Context, a *attempt, req driver.AcquireRequest) (driver.AcquireReply, error) {
	reply := q.Extend(ctx, []driver.ExtendRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})[0]
	switch {
	case reply.Err != nil:
		return driver.AcquireReply{}, reply.Err
	case !reply.Held:
		return driver.AcquireReply{Outcome: driver.Cancelled}, nil
	}
	token, end := a.tokens()
	return driver.AcquireReply{Outcome: driver.Granted, Fence: token, FenceEnd: end, Last: end, Clock: q.now()}, nil
}

// busyReply makes the reply of a busy name, with the highest token that a node has reserved.
func (q *quorum) busyReply(p *poll[driver.AcquireReply]) (reply driver.AcquireReply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reply.Nodes, reply.Clock = len(q.nodes), q.now()
	for i := range p.answers {
		if a := &p.answers[i]; a.said() {
			reply.Last = max(reply.Last, a.reply.Last)
			if a.reply.Outcome == driver.Busy {
				reply.Refused++
			}
		}
	}
	if reply.Refused > 0 {
		var ok bool
		if reply.State, ok = busy(p.answers, q.size); !ok {
			reply.State = unknownHolder()
		}
	}
	return reply
}

// soonest and latest bound when a caller asks again after a split vote. Attempts that meet again and
// again need different pauses.
const (
	soonest = time.Millisecond
	latest  = 8 * time.Millisecond
)

// unknownHolder is the state of a name without a known holder. Its TTL has the caller ask again soon.
func unknownHolder() driver.State {
	return driver.State{Held: true, TTL: rand.N(latest - soonest)}
}

func acquireWord(reply driver.AcquireReply) string {
	switch reply.Outcome {
	case driver.Granted:
		return "granted"
	case driver.Cancelled:
		return "cancelled"
	case driver.TooLow:
		return "a higher token is reserved"
	default:
		return "busy"
	}
}
