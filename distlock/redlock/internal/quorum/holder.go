package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// holder returns the state of the owner that at least need nodes show as the holder.
func holder(answers []answer, need, size int) (state driver.State, ok bool) {
	for i := range answers {
		one := &answers[i]
		if !one.refused() {
			continue
		}
		var ttls []time.Duration
		var fence int64
		for j := range answers {
			a := &answers[j]
			if !a.refused() || a.reply.State.Owner != one.reply.State.Owner {
				continue
			}
			ttls = append(ttls, a.reply.State.TTL)
			if s := a.reply.State.State; !a.young && s.Fence >= fence {
				// ⚑ The highest token: a raise that a quorum has made is on one of these nodes.
				state, fence = s, s.Fence
			}
		}
		if len(ttls) < need {
			continue
		}
		if fence == 0 {
			state = one.reply.State.State
		}
		// The grant lasts for as long as a quorum of nodes keeps it.
		slices.Sort(ttls)
		state.TTL = ttls[max(len(ttls)-size, 0)]
		state.Fence = fence
		return state, true
	}
	return driver.State{}, false
}

// inspect returns what the nodes show of a name, and whether no further answer changes it.
// ⚑ A name is free only if no owner can have a quorum, with the nodes that do not answer.
func inspect(answers []answer, size int) (state driver.State, known bool) {
	if state, known = holder(answers, size, size); known {
		return state, true
	}
	open, failed := 0, 0
	for i := range answers {
		if a := &answers[i]; a.pending {
			open++
		} else if !a.replied() {
			failed++
		}
	}
	state, may := holder(answers, max(size-open-failed, 1), size)
	return state, open+failed <= len(answers)-size && (open == 0 || !may)
}

// Inspect implements driver.Driver. It waits for all nodes that are not silent: each shows another
// TTL.
func (q *quorum) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	if ctx.Err() != nil {
		return driver.State{}, notDone(ctx)
	}
	p := newPoll(q, ctx, callLimit)
	defer close(p.decided)
	for _, n := range q.nodes {
		p.ask(n, func(ctx context.Context) (Reply, error) {
			reply, err := n.Inspect(ctx, name)
			reply.State = ofGrant(reply.State)
			return reply, err
		}, nil)
	}
	var state driver.State
	var known bool
	err := p.wait(ctx, func(answers []answer, timeUp bool) bool {
		state, known = inspect(answers, q.size)
		return !slices.ContainsFunc(answers, func(a answer) bool {
			return a.pending && !(known && (timeUp || a.silent))
		})
	})
	if err != nil || !known {
		return driver.State{}, p.failure(err, false)
	}
	return state, nil
}
