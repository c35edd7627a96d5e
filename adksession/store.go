package adksession

import (
	"context"
	"time"
)

// id names a session. Its parts are 1 to 128 bytes of UTF-8 without U+0000.
type id struct{ app, user, name string }

// access is what the calls of a store have in common. The checks are in this order:
//
//   - If born is not empty, and not that of the session under the id, the outcome is missing.
//   - If token is below the mark of the session, the outcome is stale. It is 0 without a lease, and passes.
//
// A call that passes raises the mark to token in the same step. With token 0, a get writes nothing.
// Expired sessions are absent.
type access struct {
	id
	born  string // 32 hexadecimal digits; empty: of any session under the id
	token int64
}

// delta is the new value of one key of a state.
type delta struct {
	scope scope
	key   string // without the prefix of its scope; UTF-8 without U+0000
	value string // JSON
}

type scope byte

const (
	ofApp     scope = 'a'
	ofUser    scope = 'u'
	ofSession scope = 's'
)

// creation creates a session. The outcome is exists if the id has a session. ⚑ The checks of access
// come first: with an empty born, that of the token.
type creation struct {
	access         // its born is that of the new session, and is not checked
	state  []delta // in order of scope and key
}

// page asks for events of a session. A record counts from 0.
type page struct {
	access
	from   int64 // the first record
	recent int64 // without upto: only that many last records, if positive
	upto   int64 // the record that ends the read; 0: the first page, all records
}

// pageBytes ends a page: the record that reaches it is its last one.
const pageBytes = 8 << 20

// write appends one event with its deltas, in one step. The outcomes are, in this order:
//
//   - If op is the last op of the session under born, it is done: ⚑ an earlier copy has stored it.
//   - The checks of access.
//   - If last is not the last op of the session, it is ahead. ⚑ Not equal, whatever the number of events.
type write struct {
	access
	last, op string  // 32 hexadecimal digits; a session is born with its born as op
	record   string  // JSON
	state    []delta // in order of scope and key
}

// outcome is that of a call.
type outcome int

const (
	done    outcome = iota
	missing         // no session, or one of another born
	stale           // a higher token was seen: reply.mark
	ahead           // the last op is another one
	exists
)

// stored is a session in the store, at one moment.
type stored struct {
	id
	born, op string
	n        int64     // number of records
	updated  time.Time // of the last create or append, by the clock of the store
	// The states: key without prefix → JSON.
	appState, userState, state map[string]string
}

// reply answers a call. After an outcome other than done, nothing was written.
type reply struct {
	outcome outcome
	mark    int64  // of stale
	session stored // of create, of get, and of a listed session; of append, updated alone
	from    int64  // of get: the number of the first record
	records []string
}

// store keeps sessions. It is safe for concurrent use. Its methods send one request, once, and return the
// error of the client, with a kind of package driver of distlock: an error of no kind is an unknown outcome.
type store interface {
	// create has the whole new session in its reply.
	create(context.Context, creation) (reply, error)
	// get returns header, states and records of one moment. Of a later page, with upto, only n and the records
	// count, and the outcome is missing if the session has fewer records than upto. With a token, the mark is
	// raised before anything is read.
	get(context.Context, page) (reply, error)
	append(context.Context, write) (reply, error)
	// list returns sessions of an app without records; of one user unless user is empty. They follow after in the
	// order of the store. next is empty on the last page. A page may be empty with a next page.
	list(ctx context.Context, app, user string, after id) (sessions []stored, next id, err error)
	// delete removes a session, and its state. An absent one is no error.
	delete(context.Context, id) error
}
