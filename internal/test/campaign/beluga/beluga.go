// Package beluga is what the campaign and its workers that run Beluga's Runner say to each other.
package beluga

import (
	"fmt"
	"time"
)

// Role is the role of a worker: package internal/faultwork of the module belugamemory.
const Role = "beluga"

// Config is that of a worker.
type Config struct {
	URL      string // of the Redis
	Unlocked bool   // on a plain service, without a lock
	TTL      time.Duration
	Think    time.Duration // the longest time in which the agent answers
}

// Request is a message of a client, or asks for a whole session.
type Request struct {
	Turn    int
	Session string
	Client  string // empty: what is stored in the session?
}

// Question is the text of the message.
func (r Request) Question() string { return fmt.Sprintf("question %d of %s", r.Turn, r.Client) }

// Reply is what a client sees.
type Reply struct {
	Turn   int
	Answer string
	Err    string
	Code   string // of Err
	Lost   bool   // Err is the loss of the lock
	Repeat bool   // Err is retryable
	Stored []Pair
	Count  any // of the turns, in the State of a session; nil: not counted
}

// Pair is a stored question with its answer. Each has the number of turns that the agent knew.
type Pair struct{ Question, Answer string }
