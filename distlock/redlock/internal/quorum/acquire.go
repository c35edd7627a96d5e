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
	mostRounds = 16
)

// Acquire implements driver.Driver. Each call is an attempt with a node owner of its own, unless
// the owner holds the name already. An attempt that does not get the name is undone.
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
	token := q.token(req.Name)
	for proposals := 1; ; proposals++ {
		p := newPoll(q, ctx, limit(req.TTL))
		d, err := a.propose(ctx, p, token)
		if err != nil || d != higher || proposals == mostProposals {
			defer close(p.decided)
			return q.conclude(ctx, k, a, p, token, d, err)
		}
		token = q.above(p, token)
		close(p.decided)
	}
}

// conclude makes the reply of an attempt, whose caller has left if err is not nil. An attempt without
// a grant is undone.
func (q *quorum) conclude(ctx context.Context, k key, a *attempt, p *poll, token int64,
	d decision, err error) (driver.AcquireReply, error) {
	if err == nil && d == granted && q.noteGrant(k, a, token) {
		return driver.AcquireReply{Outcome: driver.Granted, Fence: token, FenceEnd: token + Block}, nil
	}
	undo := a.undo(true)
	switch {
	case err != nil:
		return driver.AcquireReply{}, p.failure(err, true)
	case d == failed:
		return driver.AcquireReply{}, p.failure(nil, a.holdsAfter(ctx, undo))
	case d == granted, d == cancelled:
		return driver.AcquireReply{Outcome: driver.Cancelled}, nil
	}
	q.noteRefusal(k, a)
	state := unknownHolder(d)
	if d == otherHolds {
		p.mu.Lock()
		defer p.mu.Unlock()
		state, _ = holder(p.answers, q.size, q.size)
	}
	return driver.AcquireReply{State: state}, nil
}

// unknownHolder is the state of a name without a known holder. Its TTL is random, so that callers
// ask again at different times.
func unknownHolder(d decision) driver.State {
	if d == yield {
		return driver.State{Held: true, TTL: 20*time.Millisecond + rand.N(40*time.Millisecond)}
	}
	return driver.State{Held: true, TTL: rand.N(7 * time.Millisecond)}
}

// check refuses a call before it begins.
func (q *quorum) check(ctx context.Context, ttl time.Duration) error {
	if ctx.Err() != nil {
		return notDone(ctx)
	}
	if q.restartDelay > 0 && ttl > q.restartDelay {
		return fmt.Errorf("redlock: %w: %w: the TTL of %s is longer than the restart delay of %s; "+
			"set a longer delay in all processes, or a shorter TTL", driver.ErrRefused, driver.ErrNotDone, ttl, q.restartDelay)
	}
	return nil
}

// propose asks the nodes to grant the name under a token. ⚑ In a split vote one attempt goes on. It
// keeps its nodes, and asks the refusing nodes again while the other attempts are undone.
func (a *attempt) propose(ctx context.Context, p *poll, token int64) (d decision, err error) {
	for _, n := range a.q.nodes {
		a.send(p, n, token)
	}
	until := time.Now().Add(a.req.TTL / 2)
	for rounds := 0; ; rounds++ {
		err = p.wait(ctx, func(answers []answer, timeUp bool) bool {
			d = judge(answers, a.q.size, token, a.q.clock(), timeUp)
			return d != undecided
		})
		if err != nil || d != goOn || rounds == mostRounds || time.Now().After(until) {
			return d, err
		}
		if err := p.pause(ctx, rounds); err != nil {
			return d, err
		}
		for _, n := range a.q.refusing(p) {
			a.send(p, n, token)
		}
	}
}

// pause waits until the other attempts of a split vote are undone, and begins another question. The
// first pause lasts about as long as the last question.
func (p *poll) pause(ctx context.Context, rounds int) error {
	p.mu.Lock()
	round := min(max(time.Since(p.asked), minRound)<<(rounds/3), maxRound)
	p.mu.Unlock()
	err := sleep(ctx, round/2+rand.N(round))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.leastWait = time.Now(), roundWait
	return err
}

// minRound and maxRound bound the pauses between two rounds.
const (
	minRound = 500 * time.Microsecond
	maxRound = 4 * time.Millisecond
)

// refusing returns the nodes that another attempt holds.
func (q *quorum) refusing(p *poll) (nodes []*node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.answers {
		if a := &p.answers[i]; !a.pending && a.refused() {
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
	token := a.tokens()
	return driver.AcquireReply{Outcome: driver.Granted, Fence: token, FenceEnd: token + Block}, nil
}

// above returns the token to propose after one that was too low. ⚑ It is above the own block, too:
// a node may yet accept the lower token.
func (q *quorum) above(p *poll, token int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(nextToken(p.answers, q.size, q.clock()), token+Block+1)
}
