package adksession

import (
	"context"
	"time"

	"google.golang.org/adk/v2/session"
)

// store keeps sessions. It is safe for concurrent use. Expired sessions are absent.
type store interface {
	// do sends one request, once. Its error is that of the client, with a kind of package driver of
	// distlock. An error of no kind is an unknown outcome.
	do(context.Context, request) (reply, error)
}

type operation string

const (
	// opGet returns the last records of a session, with its header and states as of one moment. With a token
	// it raises the mark before it reads; with 0 it writes nothing. Without a name, it finds all sessions of
	// an app, or of one user if that is not empty, in any order.
	opGet operation = "get"
	// opAppend stores a record and its state. The reply has updated alone.
	opAppend operation = "append"
	// opCreate makes a session with a state. op is its last op. The reply is that of opGet.
	opCreate operation = "create"
	// opDelete removes a session with its state and records. An absent one is no error.
	opDelete operation = "delete"
	// opStop keeps token as that of the last stop.
	opStop operation = "stop"
)

// id names a session. Its parts are 1 to 128 bytes of UTF-8 without U+0000.
type id struct{ app, user, name string }

// request asks for an operation, with the fields of that operation. A store checks it in this order:
//
//   - Without a session, the outcome is missing. Only an opCreate has then passed.
//   - opAppend: if op is the last op of the session, it is done. ⚑ An earlier copy has stored the event.
//   - If since is positive and below the last stop of the session, it is ended. ⚑ Not by token, which its
//     owner can raise. ⚑ Before the others: the error says why.
//   - opCreate: it is exists.
//   - If token is positive and below the mark of the session, it is stale.
//   - opAppend: if last is not the last op of the session, it is ahead. ⚑ Not equal, whatever the number:
//     after a failover, another event may have that of the last one.
//
// A request that passes raises the mark to token in the same step. Another request writes nothing.
type request struct {
	operation
	id
	token int64 // of the lease, or of the stop; 0: none
	since int64 // of the lease, see fencing.Since; 0: not known

	op    string // of opAppend and opCreate: random
	last  string // of opAppend: the op before
	event []byte // of opAppend: JSON, see record
	state state  // of opAppend and opCreate

	recent int64 // of opGet: how many of the last records to read
}

// state has values in JSON. The prefix of a key, app: or user:, says whose it is: else the session's. A key
// is UTF-8 without U+0000.
type state map[string]string

// reply is that of any operation. After an outcome other than done, the mark alone counts.
type reply struct {
	outcome outcome
	mark    int64     // of stale
	op      string    // the last one
	n       int64     // number of records of the session
	updated time.Time // of the last create or append, by the clock of the store
	state   state     // of the app, the user and the session
	records []string  // see request.record
	id      id        // of a session in found
	found   []reply   // of opGet without a name

	events []*session.Event // see decode
	values map[string]any
}

type outcome int

const (
	done outcome = iota
	missing
	stale
	ahead
	exists
	ended
)
