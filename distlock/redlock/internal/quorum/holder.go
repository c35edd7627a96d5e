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
					state, fence = s.State.State, s.Fence
				}
			}
		}
		if len(ttls) < need {
			continue
		}
		if fence == 0 {
			state = one.State.State
		}
		// The grant lasts for as long as a quorum of nodes keeps it.
		slices.Sort(ttls)
		state.TTL = ttls[max(len(ttls)-size, 0)]
		state.Fence = fence
		return state, true
	}
	return driver.State{}, false
}

// shown is the state of a holder, as a node shows it.
type shown struct {
	State
	young bool
}

// busy returns the state of the holder that a quorum of nodes shows.
func busy(answers []answer, size int) (driver.State, bool) {
	refused := 0
	for i := range answers {
		if a := &answers[i]; a.replied() && a.reply.Outcome == Busy {
			refused++
		}
	}
	if refused < size {
		return driver.State{}, false
	}
	states := make([]shown, 0, refused)
	for i := range answers {
		if a := &answers[i]; a.replied() && a.reply.Outcome == Busy {
			states = append(states, shown{a.reply.State, a.young})
		}
	}
	return holder(states, size, size)
}

// inspect returns what the nodes show of a name, and whether no further answer changes it.
// ⚑ A name is free only if no owner can have a quorum, with the nodes that do not answer.
func inspect(answers []answer, size int) (state driver.State, known bool) {
	var states []shown
	open, failed := 0, 0
	for i := range answers {
		switch a := &answers[i]; {
		case a.pending:
			open++
		case !a.replied():
			failed++
		case a.reply.Outcome == Busy:
			states = append(states, shown{a.reply.State, a.young})
		}
	}
	if state, known = holder(states, size, size); known {
		return state, true
	}
	state, may := holder(states, max(size-open-failed, 1), size)
	return state, open+failed <= len(answers)-size && (open == 0 || !may)
}
