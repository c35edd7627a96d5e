package quorum

import (
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// holder returns the state of the owner that at least need nodes show as the holder.
func holder(shown []shown, need, size int) (state driver.State, ok bool) {
	for _, one := range shown {
		var ttls []time.Duration
		var fence int64
		for _, s := range shown {
			if s.Owner == one.Owner {
				ttls = append(ttls, s.TTL)
				if !s.young && s.Fence >= fence {
					// ⚑ The highest token: a raise that a quorum has made is on one of these nodes.
					state, fence = s.State, s.Fence
				}
			}
		}
		if len(ttls) < need {
			continue
		}
		if fence == 0 {
			state = one.State
		}
		// The grant lasts for as long as a quorum of nodes keeps it.
		slices.Sort(ttls)
		state.TTL = ttls[max(len(ttls)-size, 0)]
		state.Owner, state.Waiters, state.Fence = "", 0, fence // the owner means nothing outside the nodes
		return state, true
	}
	return driver.State{}, false
}

// shown is the state of a holder, as a node shows it.
type shown struct {
	driver.State
	young bool
}

// busy returns the state of the holder that a quorum of nodes shows.
func busy(answers []answer[driver.AcquireReply], size int) (driver.State, bool) {
	refused := 0
	for i := range answers {
		if a := &answers[i]; a.replied() && a.reply.Outcome == driver.Busy {
			refused++
		}
	}
	if refused < size {
		return driver.State{}, false
	}
	states := make([]shown, 0, refused)
	for i := range answers {
		if a := &answers[i]; a.replied() && a.reply.Outcome == driver.Busy {
			states = append(states, shown{a.reply.State, a.young})
		}
	}
	return holder(states, size, size)
}

// inspect decides what the nodes show of a name. It has no decision while an answer may change it.
// ⚑ A name is free only if no owner can have a quorum.
func inspect(answers []answer[driver.State], size int) (state driver.State, d agreement) {
	var states []shown
	open, unknowns, free := 0, 0, 0
	for i := range answers {
		switch a := &answers[i]; {
		case a.pending:
			open++
		case !a.replied():
			unknowns++
		case a.reply.Held:
			states = append(states, shown{a.reply, a.young})
		default:
			free++
		}
	}
	if state, ok := holder(states, size, size); ok {
		return state, yes
	}
	_, may := holder(states, max(size-open-unknowns, 1), size)
	switch {
	case !may && free+len(states) >= size && open+unknowns < size:
		return driver.State{}, yes
	case open > 0:
		return driver.State{}, awaiting
	case may && free+len(states) >= size:
		state, _ = holder(states, max(size-unknowns, 1), size)
		return state, yes
	}
	return driver.State{}, unknown
}
