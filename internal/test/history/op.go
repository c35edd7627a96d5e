package history

import "encoding/json"

// Op is one operation with the outcome that its caller knows. The package documentation explains the
// fields for each Kind.
type Op struct {
	Kind    Kind    `json:"kind"`
	Process string  `json:"-"`    // its client
	Call    int64   `json:"call"` // just before it was sent, on a clock that all processes share
	Return  int64   `json:"return,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`

	Fence int64  `json:"fence,omitempty"` // of the lease; 0: made outside of a turn
	Entry string `json:"entry,omitempty"` // of Save: the identity of what it stores
	Turn  string `json:"turn,omitempty"`  // of Save: its turn ID
	// Seen are the entries that a Load returned, in order. Most is how many of the last entries the Load
	// asked for; 0: all.
	Seen []string `json:"seen,omitempty"`
	Most int      `json:"most,omitempty"`
	// Range are the entries that a Replace removes, as a Load of its turn has shown them. With are the new
	// entries in their place. No other operation stores these.
	Range []string `json:"range,omitempty"`
	With  []string `json:"with,omitempty"`
	// Mark is, of a call that was refused as stale, the mark that the store named; 0 if it named none.
	Mark int64 `json:"mark,omitempty"`
	// Began is, of a call that was refused as Deleted, when its turn began to wait.
	Began int64 `json:"began,omitempty"`
}

// Kind is what an Op is.
type Kind string

// The kinds of operations.
const (
	Load    Kind = "load"
	Save    Kind = "save" // an Append, too: an entry has any number of messages
	Replace Kind = "replace"
	Clear   Kind = "clear"
	Delete  Kind = "delete"
)

// Outcome is the end of an Op. The zero value is Unknown: the effect may be there, may come later, or never.
type Outcome string

const (
	Unknown Outcome = ""
	// OK: it took effect. Of Save: or it had been stored before under its turn ID.
	OK Outcome = "ok"
	// Nothing: it had no effect and never will have, for a reason that is not checked: the lock was
	// busy, say.
	Nothing Outcome = "nothing"
	// Stale: the store has refused the token.
	Stale Outcome = "stale"
	// Conflict, of Save: the turn ID is known with other messages.
	Conflict Outcome = "conflict"
	// Deleted: the store has refused the turn, because the session was deleted while the turn waited.
	Deleted Outcome = "deleted"
)

// String is the process and the operation, with the last entries of a Load.
func (o Op) String() string {
	o.Seen = o.Seen[max(0, len(o.Seen)-12):]
	text, _ := json.Marshal(o)
	return o.Process + " " + string(text)
}
