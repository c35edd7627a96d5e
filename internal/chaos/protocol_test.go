package chaos

import (
	"time"

	"github.com/belugalock/belugalock/internal/integrity"
)

// message is what the sessions are made of.
type message struct {
	Turn  int            `json:"t"`
	Role  integrity.Role `json:"r"`
	Write string         `json:"w"`           // who wrote it
	Seen  int            `json:"n,omitempty"` // of an answer: how many messages stood before its question
	Fence int64          `json:"f,omitempty"` // the token of the lease it was written under, if it was a turn's
}

// kind is what a task does.
type kind string

const (
	aTurn       kind = "turn"           // loads, thinks, saves
	aSave       kind = "save"           // saves, outside of a turn
	aClear      kind = "clear"          // clears, outside of a turn
	aTurnSaving kind = "turn that adds" // loads, thinks, saves what does not depend on what it saw
	aTurnClear  kind = "turn that clears"
)

// moment is one in a turn.
type moment string

const (
	beforeLoad moment = "before load"
	afterLoad  moment = "after load"
	inModel    moment = "in the model"
	aroundSave moment = "around save"
	afterSave  moment = "after save"
	beforeAck  moment = "before the acknowledgement"
)

var moments = []moment{beforeLoad, afterLoad, inModel, aroundSave, afterSave, beforeAck}

// manner is how an instance goes on after it was stopped.
type manner string

const (
	checked  manner = "checked"  // as if nothing had been: by the decorator, which knows that the lease has ended
	unasked  manner = "unasked"  // what the turn was about to do, by the store itself
	nameless manner = "nameless" // another write, without a turn ID, by the store itself
)

// strike is what happens to an instance in the middle of a task.
type strike struct {
	At    moment
	Pause bool   // stopped, and continued later; otherwise killed
	Then  manner // after a pause
	Notes bool   // in a session of notes
}

// task is what an instance is told to do with one message.
type task struct {
	ID      int // of this attempt
	Kind    kind
	Session string
	Turn    int
	Name    string        // the turn ID; none if empty
	Blind   bool          // saves without looking whether it is stored
	Hasty   bool          // the first Save is given almost no time, and is repeated
	Model   time.Duration // how long that thinks
	Limit   time.Duration // for the whole task
	Strike  *strike       `json:",omitempty"`
}

// word is what a report is about.
type word string

const (
	loaded  word = "loaded"  // the history was read; the lease is held
	reached word = "reached" // the moment of the strike
	written word = "written" // a write after a pause, past all checks
	done    word = "done"
)

// report is what an instance says. Times are nanoseconds of the wall clock, which all processes share.
type report struct {
	Task  int
	Word  word
	Fence int64 `json:",omitempty"` // of the lease; of done: of that under which the entry was written; after a Clear, the Clear's
	Began int64 `json:",omitempty"` // of loaded: the turn; of written: the write
	Asked int64 `json:",omitempty"` // when the Load was sent; of done: when the call was sent that shows that the entry is stored
	Wrote int64 `json:",omitempty"` // of done: when the first Save was sent; 0: none was
	Time  int64 // now
	Count int   `json:",omitempty"` // of loaded: messages

	// Of done and written.
	End   ending `json:",omitempty"`
	Write string `json:",omitempty"` // of the entry that is stored
	Error string `json:",omitempty"`

	Repeated int `json:",omitempty"` // Saves repeated in place
}

// ending is how a task or a write ended.
type ending string

const (
	saved      ending = "saved"      // acknowledged
	found      ending = "found"      // acknowledged: it stood there when the history was loaded
	conflicted ending = "conflicted" // acknowledged: the Save said so, and there it stood
	refused    ending = "refused"    // not stored: the store has seen a higher token, or knows the turn
	held       ending = "held"       // not stored: the decorator let nothing through
	unknown    ending = "unknown"    // stored or not
	undone     ending = "undone"     // not stored
	wrong      ending = "wrong"      // what should not happen
)

func (e ending) acknowledged() bool { return e == saved || e == found || e == conflicted }

func now() int64 { return time.Now().UnixNano() }
