// Package instance is what the campaign and its instances of a Runner say to each other.
package instance

import (
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/belugalock/belugalock/internal/test/child"
)

// Role is the role of an instance: package internal/faultwork of the module belugamemory, or module
// adksession/faultwork.
const Role = "instance"

// Config is that of an instance.
type Config struct {
	URL           string // of the locks and the sessions
	Broken        string
	TTL           time.Duration
	KeepPartial   bool
	Interruptible bool
	EndWithReader bool
}

// Serve answers calls of clients, several at a time, until the parent no longer needs the instance.
func Serve(parent *child.Line, do map[string]func(Order) Reply) {
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		var o Order
		if parent.Receive(&o) != nil {
			return
		}
		clients.Go(func() {
			s := do[o.Do](o)
			s.N = o.N
			_ = parent.Send(s)
		})
	}
}

// What an instance can do wrong. Each of them has findings, or the campaign tests nothing.
const (
	// Of Beluga.
	NoLock   = "no lock"   // sessions of a plain service
	NoID     = "no ID"     // messages lose their IDs
	NoResult = "no result" // the calls of a stopped run lose their results
	IdleStop = "idle stop" // a StopMessage that does nothing

	// Of ADK. The last four let an append pass, whatever came since the session was read.
	SQL        = "SQL"         // ADK's own service, without a lock
	NoCheck    = "no check"    // nothing else
	NoState    = "no state"    // the state of a user is not written
	NoAnswer   = "no answer"   // some answers are acknowledged and not stored
	TwoAnswers = "two answers" // some are stored twice
)

// Order is a call of a client. A Stop without an ID is one of the session.
type Order struct {
	N           int    // so that the client knows the reply
	Do          string // one of the following
	Session, ID string
	Text        string        // of the message
	Turn        int           // its number
	Writer      string        // the client
	Leaves      int           // the client leaves with this event; 0: it stays
	Limit       time.Duration // of the context of a Run; 0: none. The grace of a Stop.
}

const (
	Run     = "run"
	Stop    = "stop"
	Read    = "read"
	Migrate = "migrate" // install what the sessions need in a database
)

// Reply says how a call has ended. Without an N, a model was given a history with an Orphan.
type Reply struct {
	N        int
	End      string // one of the following
	Err      string
	Lost     bool // Err is the loss of the lock
	Cut      bool // Err is a stop of the run, after an event
	Exchange      // of a Run, without its Question
	Stored   bool // what a Stop says of its message
	Turns    []Exchange
	Count    any            // of the turns, in the State of a session of Beluga; nil: not counted
	State    map[string]any // of a session of ADK
	Orphan   string         // a call without its result, or a result without its call, in a history
}

const (
	Done    = "done" // the Run has an answer, or the Stop is over
	Stopped = "stopped"
	Again   = "again" // the call can be repeated, or its client has left, and can come back
	Wrong   = "wrong"
)

// Scopes are the prefixes of keys in a state of ADK. A run writes the name of its client in each.
var Scopes = []string{"", "user:", "app:"}

// Exchange is a question with its answer, and the calls and results of tools, one a line. Partial: it was
// stopped.
type Exchange struct {
	Question, Answer, Tools string
	Partial                 bool
}

// Digest is what a model says of the questions that it was given: how many, and which.
func Digest(questions []string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(questions, "\n")))
	return fmt.Sprintf("%d %x", len(questions), h.Sum64())
}
