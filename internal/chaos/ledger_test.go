package chaos

import (
	"fmt"
	"time"
)

// session is a conversation, or a session of notes.
type session struct {
	name       string
	notes      bool
	unanswered int
	given      int    // messages, so far
	holds      []hold // in the order in which they were reported
	stopped    *child // that has a note here, and is to write behind a Clear
}

// hold is a lease of a session under which somebody has loaded, or cleared, and so shown its token to the store.
type hold struct {
	by          *attempt
	fence       int64
	began, time int64 // of the turn; when the Load, or the Clear, had returned
}

// unit is one message of a user, whatever it takes to get it answered.
type unit struct {
	session  *session
	kind     kind
	turn     int
	name     string // the turn ID
	attempts []*attempt
	open     int
	answered bool // or given up
	retry    time.Time
	behind   bool      // clears behind a holder that was stopped; nobody else works on the session then
	again    time.Time // when it is handed out once more although it was answered; zero: not
}

// attempt is one attempt to have a message answered. Its times are of the ledger: what was begun after something else was
// acknowledged has to stand behind it, whichever instances did the two.
type attempt struct {
	task
	of           *unit
	by           *child
	begun, ended int64
	loaded, done *report
	died         bool // or says nothing for good
	struck       bool
	rival        *attempt // at whose Load the instance is to go on that was stopped; nil: at anybody's
}

func (a *attempt) acknowledged() bool { return a.done != nil && a.done.End.acknowledged() }

// outcome is how it has ended.
func (a *attempt) outcome() ending {
	if a.done == nil {
		return unknown
	}
	return a.done.End
}

// reason is why a message is handed out.
type reason string

const (
	first     reason = "first"
	twice     reason = "at once with the first"
	afterDead reason = "the instance had died"
	afterFail reason = "the attempt had failed"
	afterHush reason = "the instance said nothing"
	onPause   reason = "its instance was stopped"
	afterAck  reason = "though it was answered"
)

// pastWrite is a write past all checks.
type pastWrite struct {
	by *attempt
	report
}

// recovery is how soon a session goes on whose holder was struck.
type recovery struct {
	of    *attempt
	since int64 // the strike; or when somebody wanted the session, if that was later; 0: nobody does yet
	alone bool  // nobody else was struck, meanwhile, who stood in line for the session
}

// tally counts what a campaign does.
type tally struct {
	answered  int
	givenUp   int
	handed    map[reason]int
	kills     map[moment]int
	pauses    map[moment]int
	endings   map[ending]int
	repeated  int
	hangUps   int // of all connections to Redis
	checked   int // writes after a pause that the decorator let not through
	crashes   int
	recovered []time.Duration // of those who were struck alone
	slowest   time.Duration   // of all others
	failovers time.Duration   // the longest time without a master
}

func newTally() tally {
	return tally{handed: map[reason]int{}, kills: map[moment]int{}, pauses: map[moment]int{}, endings: map[ending]int{}}
}

func sum[K comparable](counts map[K]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (s *session) String() string { return fmt.Sprintf("%s, %d unanswered", s.name, s.unanswered) }
