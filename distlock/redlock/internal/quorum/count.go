package quorum

import (
	"cmp"
	"slices"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The decisions of the quorum. Each takes the answers of the nodes, and the size of a quorum. A final
// decision takes a node without an answer as one that failed.

// decision is what the answers to a proposal mean.
type decision int

const (
	undecided decision = iota
	granted
	higher // a higher token may get a quorum
	held   // another owner has a quorum
	goOn   // a split vote that this attempt may win
	yield  // a split vote that another attempt may win
	void   // the attempt is cancelled
	failed // too few nodes answer
)

// judge decides on the answers to a proposal.
func judge(answers []answer[driver.AcquireReply], size int, final bool) decision {
	var open, accepted, low, refused, cancelled int
	taken, lowest := false, false // a node is taken, and the lowest of them is this attempt's
	for i := range answers {
		a := &answers[i]
		if a.open(final) {
			open++
			continue
		}
		if !a.said() {
			continue
		}
		outcome := a.reply.Outcome
		if !taken && (outcome == driver.Granted || outcome == driver.Busy) {
			taken, lowest = true, outcome == driver.Granted
		}
		switch {
		case outcome == driver.Cancelled:
			cancelled++
		case a.young: // ⚑ its server may have forgotten a grant
		case outcome == driver.Granted:
			accepted++
		case outcome == driver.TooLow:
			low++
		default:
			refused++
		}
	}
	switch {
	case accepted >= size:
		return granted
	case refused >= size && isBusy(answers, size):
		return held
	case accepted+open >= size:
		return undecided
	case accepted+low >= size:
		return higher
	case open > 0:
		return undecided
	case cancelled > 0:
		return void
	case accepted+low+refused < size:
		return failed
	case lowest: // ⚑ of several attempts one goes on
		return goOn
	default:
		return yield
	}
}

// holder returns the state of the owner that at least need nodes show as the holder. open is the number of
// nodes that may show more.
func holder(shown []driver.State, need, open, size int) (state driver.State, ok bool) {
	for _, s := range shown {
		var same []driver.State
		for _, other := range shown {
			if other.Owner == s.Owner {
				same = append(same, other)
			}
		}
		if len(same) < need {
			continue
		}
		// ⚑ The highest token that a quorum can have: a raise that failed may be higher.
		slices.SortFunc(same, func(a, b driver.State) int { return cmp.Compare(b.Fence, a.Fence) })
		state = same[min(max(size-open, 1), len(same))-1]
		// The grant lasts for as long as a quorum of nodes keeps it.
		slices.SortFunc(same, func(a, b driver.State) int { return cmp.Compare(b.TTL, a.TTL) })
		state.TTL = same[min(size, len(same))-1].TTL
		state.Owner, state.Waiters = "", 0 // they mean nothing outside the nodes
		return state, true
	}
	return driver.State{}, false
}

func isBusy(answers []answer[driver.AcquireReply], size int) bool {
	_, ok := busy(answers, size)
	return ok
}

// busy returns the state of the holder that a quorum of nodes shows.
func busy(answers []answer[driver.AcquireReply], size int) (driver.State, bool) {
	var shown []driver.State
	open := 0
	for i := range answers {
		switch a := &answers[i]; {
		case !a.said() || a.pending:
			open++
		case a.reply.Outcome == driver.Busy:
			shown = append(shown, a.reply.State)
		}
	}
	return holder(shown, size, open, size)
}

// inspect decides what the nodes show of a name. ⚑ A name is free only if no owner can have a quorum.
func inspect(answers []answer[driver.State], size int) (state driver.State, ok bool) {
	var shown []driver.State
	open := 0
	for i := range answers {
		switch a := &answers[i]; {
		case !a.said():
			open++
		case a.reply.Held:
			shown = append(shown, a.reply)
		}
	}
	if len(answers)-open < size {
		return driver.State{}, false
	}
	state, _ = holder(shown, max(size-open, 1), open, size)
	return state, true
}

// agreement is what the answers to a request of a holder mean.
type agreement int

const (
	unsure agreement = iota // a quorum may yet agree
	yes
	no      // a quorum cannot agree any more
	unknown // too few nodes answer
)

// agree decides by the numbers of nodes that say yes, that say no, and that may answer yet.
func agree(yeses, noes, open, nodes, size int) agreement {
	switch {
	case yeses >= size:
		return yes
	case noes > nodes-size:
		return no
	case open > 0:
		return unsure
	default:
		return unknown
	}
}
