// Package beluga is what the campaign and its workers that run Beluga's Runner say to each other.
package beluga

import (
	"time"

	"github.com/belugalock/belugalock/internal/test/conversation"
)

// Role is the role of a worker: package internal/faultwork of the module belugamemory.
const Role = "beluga"

// Config is that of a worker.
type Config struct {
	URL      string // of the Redis
	Unlocked bool   // on a plain service, without a lock
	TTL      time.Duration
	Think    time.Duration // the longest time in which the agent answers
	Run      int           // counts the workers
	Seed     uint64
	Clients  int // that send messages, one at a time each
	Sessions []string
	Read     bool // report the stored turns of each session, and end
}

// Said is what a worker says: before a client sends a message, after the answer, or of a session.
type Said struct {
	Session string
	Attempt *conversation.Attempt // nil: of a session. Ended is 0 before the answer.
	Answer  string                // that the client sees
	Err     string
	Lost    bool // Err is the loss of the lock
	Stored  []Pair
	Count   any // of the turns, in the State of a session; nil: not counted
}

// Pair is a stored question with its answer. Each has the number of turns that the agent knew.
type Pair struct{ Question, Answer string }
