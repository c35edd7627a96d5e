package subject

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
)

// The names of the ways to keep sessions, except Ours.
const (
	Stream    = "XADD"
	BsmStream = "bsm/redislock, XADD"
	List      = "LRANGE"
)

// Message is what sessions consist of.
type Message struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

// Session is one session, as a program sees it. The methods are those of this library's memory, so
// it pays for no wrapper.
type Session interface {
	// Save appends a question and its answer.
	Save(ctx context.Context, question, answer Message) error
	// Load returns all messages; the bench uses no query.
	Load(ctx context.Context, query string) ([]Message, error)
}

// TurnTaker is a Session in which a turn may be more than a Save.
type TurnTaker interface {
	Session
	Turn(ctx context.Context, fn func(ctx context.Context) error, opts ...distlock.CallOption) error
}

// Sessions is a way to keep sessions, at work.
type Sessions interface {
	// Session returns the session of that name, which may be a new one. It does no I/O.
	Session(name string) (Session, error)
	// Close ends what belongs to it, its client included.
	Close() error
}

var keepers = map[string]func(Setup) (Sessions, error){
	Ours:         openStore,
	Stream:       func(s Setup) (Sessions, error) { return &streams{s.client()}, nil },
	BsmStream:    openBsmStreams,
	OursPostgres: openPostgresStore,
	Insert:       openInserts,
	List:         func(s Setup) (Sessions, error) { return &lists{s.client()}, nil },
}

// OpenSessions opens the way of that name.
func OpenSessions(name string, s Setup) (Sessions, error) {
	open, ok := keepers[name]
	if !ok {
		return nil, fmt.Errorf("no way to keep sessions is called %q", name)
	}
	k, err := open(s)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return k, nil
}
