package campaign

import (
	"encoding/gob"
	"net"
	"time"

	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/history"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

type config struct {
	On         string
	Works      []string
	Addrs      []string
	MasterName string            `json:",omitempty"`
	Nodes      []string          `json:",omitempty"` // of a quorum; Addrs has the sessions
	Postgres   string            `json:",omitempty"` // the URL
	Via        map[string]string `json:",omitempty"` // proxies, by the servers' addresses
	Register   string            // path of its socket
	Run        int
	Seed       uint64
	TTL        time.Duration
	Start      int64         // of the campaign
	Rotate     time.Duration // keys and sessions are new after each
	Goroutines int
	Punctual   bool // its client keeps deadlines
	Hammers    bool
	Broken     string
}

// epoch counts the sets of keys and sessions.
func epoch(at, start int64, rotate time.Duration) int { return int((at - start) / int64(rotate)) }

// The keys of an epoch, without those that a goroutine has for itself.
const (
	hotKeys = 3
	talks   = 3 // sessions with turns
	notes   = 2 // sessions with Clears, and with Saves outside turns
)

// order is what the parent tells a worker while it runs, a line of JSON each.
type order struct {
	Do   string
	Key  string
	For  time.Duration
	Aim  *aim `json:",omitempty"` // of doReach; nil: none any more
	Turn int  // of doMeet: the turn, and what to do; 0: another one
	Kind kind
}

const (
	doStarve = "starve" // busy loops have its processor
	doCancel = "cancel" // contexts end within milliseconds
	doSlow   = "slow"   // holders hold for longer than their lease lasts
	doHold   = "hold"   // wait in the queue of a key, and hold it for a time
	doReach  = "reach"  // tell when a task comes to a moment
	doMeet   = "meet"   // take over what a struck worker was about, or clear its session
)

const (
	sayReached   = iota + 1 // a task has come to the moment of a strike; answered
	sayEnter                // a critical section begins; answered
	sayLeave                // it ends
	sayWrite                // an access that looks at nothing, by one that was stopped; answered
	sayTrusted              // a call was refused although the lease is held
	sayAttempt              // a turn, Save or Clear has ended
	sayWrong                // something happened that should not
	sayOperation            // an operation on a session of drafts begins, or has returned
	sayAlive                // nothing but counts
)

// said is what a worker says. The register answers each.
type said struct {
	What  int
	Run   int
	Key   string
	Lease int64 // counts the leases of a run
	Fence int64
	// Of a lease: when its acquisition began and returned.
	Began, Got int64
	// Trusted is a moment at which the lease was held, by its own word: the clock was read before
	// the lease was asked. Ended is when its context was cancelled; 0: it was not. Naps are when,
	// since Got, the process was not let run.
	Trusted, Ended int64
	Naps           []span
	Closed         bool // its Locker was closed, which gave it back
	Counts         counts
	Attempt        *attempt
	Op             *history.Op
	Text           string
}

type answer struct {
	Refused bool // a higher token has been here
}

// counts are of acquisitions, by how they ended, and of other things.
type counts map[string]int

type message struct {
	Turn  int               `json:"t"`
	Role  conversation.Role `json:"r"`
	Write string            `json:"w"`           // the writer
	Seen  int               `json:"n,omitempty"` // of an answer: how many messages stood before its question
	Fence int64             `json:"f,omitempty"` // the token of the lease it was written under, if it was a turn's
}

type codec struct {
	sessionstore.JSON[message]
}

func exchange(turn int, write string, fence int64, seen int) (question, answer message) {
	question = message{Turn: turn, Role: conversation.Question, Write: write, Fence: fence}
	answer = message{Turn: turn, Role: conversation.Answer, Write: write, Fence: fence, Seen: seen}
	return question, answer
}

type kind string

const (
	aTurn       kind = "turn"             // loads, thinks, saves
	aNote       kind = "turn that adds"   // loads, saves what does not depend on what it saw
	aTurnClear  kind = "turn that clears" //
	aSave       kind = "save"             // outside a turn
	aClear      kind = "clear"            // outside a turn
	aStrayWrite kind = "write past all checks"
)

type ending string

const (
	saved   ending = "saved"   // acknowledged by the Save or Clear
	found   ending = "found"   // acknowledged: it stood there when the history was loaded
	refused ending = "refused" // not written: the store has seen a higher token
	held    ending = "held"    // not written: the lease had ended, or there was none
	unknown ending = "unknown" // written or not
	wrong   ending = "wrong"   // what should not happen
)

// attempt is what a worker knows of one attempt. Times that are 0 were not reached.
type attempt struct {
	Run          int
	Session      string
	Kind         kind
	Turn         int
	Write        string // the writer of the acknowledged turn
	Fence        int64  // under which this worked; of found: under which the entry was written
	Mine         int64  // under which this worked
	Begun, Ended int64
	Asked        int64 // the Load was sent
	Loaded       int64 // and answered
	Seen         int   // messages
	Sent, Done   int64 // the first Save or Clear; of found, the Load that showed it
	End          ending
	Past         bool // it was written past all checks, see manner
	Error        string
}

func (a *attempt) acknowledged() bool { return a.End == saved || a.End == found }

// line is a connection to the register. It is used by one goroutine.
type line struct {
	conn net.Conn
	out  *gob.Encoder
	in   *gob.Decoder
}

func newLine(conn net.Conn) *line { return &line{conn, gob.NewEncoder(conn), gob.NewDecoder(conn)} }

func dialRegister(path string) (*line, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return newLine(conn), nil
}

func (l *line) tell(s *said) (a answer, err error) {
	if err = l.out.Encode(s); err == nil {
		err = l.in.Decode(&a)
	}
	return a, err
}
