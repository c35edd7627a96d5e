package quorum

import (
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The decisions of the quorum. Each takes the answers of the nodes, and the size of a quorum.

// decision is what the answers to a proposal mean.
type decision int

const (
	undecided decision = iota
	granted
	higher     // a higher token may get a quorum
	otherHolds // another owner has a quorum
	goOn       // a split vote that this attempt may win
	yield      // a split vote that another attempt may win
	cancelled  // the attempt is cancelled
	failed     // too few nodes answer
)

// racing is how old a grant without a quorum is at most to be in the race: an attempt lasts less.
// ⚑ The orphan of a dead client decides nothing.
const racing = 300 * time.Millisecond

// inRace reports whether a node is in the race, and whether the attempt has it.
func inRace(reply Reply) (in, mine bool) {
	mine = reply.Outcome == Granted
	return mine || reply.Outcome == Busy && reply.State.Age <= racing, mine
}

// judge decides on the answers to the proposal of a token. timeUp says that the nodes have had
// their time.
func judge(answers []answer, size int, token, clock int64, timeUp bool) decision {
	var open, accepted, low, refused, cancels int
	cut := contended(answers, size)
	first := unknownNode // in the race
	for i := range answers {
		a := &answers[i]
		if a.pending && !(cut && (timeUp || a.silent)) {
			if open++; first == unknownNode {
				first = openNode
			}
			continue
		}
		if !a.replied() {
			continue
		}
		if in, mine := inRace(a.reply); in && first == unknownNode {
			first = otherNode
			if mine {
				first = ownNode
			}
		}
		switch outcome := a.reply.Outcome; {
		case outcome == Cancelled:
			cancels++
		case outcome == Busy:
			refused++
		case a.young: // ⚑ its server may have lost a grant
		case outcome == Granted:
			accepted++
		case mayAcceptNext(answers, size, token, clock, a.reply):
			low++
		}
	}
	_, held := holder(answers, size, size)
	switch {
	case accepted >= size:
		return granted
	case held:
		return otherHolds
	case accepted+low >= size:
		return higher
	case open > 0 && accepted > 0 && first == otherNode && accepted+low+open < size:
		return yield // ⚑ at once: the winner needs the nodes, and the other answers may be late
	case open > 0:
		return undecided
	case cancels > 0:
		return cancelled
	case accepted+low+refused < size:
		return failed
	case first == ownNode: // ⚑ of several attempts one goes on
		return goOn
	default:
		return yield
	}
}

// What the lowest node in the race is.
const (
	unknownNode = iota
	openNode    // it may be one that has not answered
	ownNode     // the attempt has it
	otherNode   // another attempt has it
)

// contended reports whether another owner has refused, and a quorum has answered.
// ⚑ Without contention each answer is awaited: one dead and one distant node would make the lock
// unusable.
func contended(answers []answer, size int) bool {
	replies, refused := 0, false
	for i := range answers {
		if a := &answers[i]; a.replied() {
			replies++
			refused = refused || a.refused()
		}
	}
	return refused && replies >= size
}

// farAhead bounds how far one node may raise the next token above what the others ask for.
const farAhead = time.Hour

// mayAcceptNext reports whether a node that has refused a token as too low may accept the next one.
// ⚑ A node whose clock is ahead refuses that, too: it must not end the wait for the others.
func mayAcceptNext(
	answers []answer, size int, token, clock int64, reply Reply,
) bool {
	if reply.Last > highestLastThatCounts(answers, size, clock) {
		return false
	}
	return reply.Last >= token || nextToken(answers, size, clock) >= reply.Clock-tokenKeep.Microseconds()
}

// tokenKeep is the least time for which nodes keep the last token, see TooLow.
const tokenKeep = time.Second

// highestLastThatCounts is the highest last token that counts. ⚑ A token that is far above the clock
// and above the others does not: the other nodes would refuse the next one, or be as far ahead from
// then on. It counts if no quorum can come about without it.
func highestLastThatCounts(answers []answer, size int, clock int64) int64 {
	lasts := make([]int64, 0, len(answers))
	open := false
	for i := range answers {
		if a := &answers[i]; a.replied() {
			lasts = append(lasts, a.reply.Last)
		} else {
			open = open || a.pending
		}
	}
	slices.Sort(lasts)
	switch {
	case open && len(lasts) > 0:
		clock = max(clock, lasts[0])
	case len(lasts) >= size:
		clock = max(clock, lasts[size-1])
	}
	return clock + farAhead.Microseconds()
}

// nextToken returns the token to propose after one that was too low: above the last token of each
// node that counts, and not behind the clock.
func nextToken(answers []answer, size int, clock int64) int64 {
	highest := highestLastThatCounts(answers, size, clock)
	for i := range answers {
		if a := &answers[i]; a.replied() && a.reply.Last <= highest {
			clock = max(clock, a.reply.Last+1)
		}
	}
	return clock
}

// agreement is what the answers to a request of a holder mean.
type agreement int

const (
	awaiting agreement = iota // further answers decide
	yes
	no      // a quorum cannot agree any more
	unknown // no further answer can decide
)

// agree decides on the answers to a request of a holder. counts reports which answers say yes.
// effects is the number of nodes on which the request may have had an effect, and open that of those
// that may answer yet.
func agree(answers []answer, size int, counts func(*answer) bool) (agreed agreement, effects, open int) {
	var yeses, noes int
	for i := range answers {
		switch a := &answers[i]; {
		case a.pending:
			open++
			effects++
		case a.err != nil:
			if driver.MayHaveEffect(a.err) {
				effects++
			}
		case a.reply.Outcome == NotHeld:
			noes++
		default:
			effects++
			if counts(a) {
				yeses++
			}
		}
	}
	switch {
	case yeses >= size:
		agreed = yes
	case noes > len(answers)-size:
		agreed = no
	case yeses+open < size && noes+open <= len(answers)-size:
		agreed = unknown
	}
	return agreed, effects, open
}
