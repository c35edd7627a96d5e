package belugarunner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Options change the defaults of [New]. The zero value of a field means its default.
type Options struct {
	// SessionService is a service of the application for the sessions, that all instances share. Runs call
	// its Get, Create and Update under the lock of the session. Default: sessions on the server of Store.
	SessionService runtime.SessionService
	// Store is the URL of the sessions: one Redis or PostgreSQL. Default: the URL of the locks. A quorum
	// keeps locks alone, and needs it.
	Store string
	// Namespace is the text before all keys, so that applications can share a server: name for the locks,
	// and name:run for the sessions. Default: "distlock" and "run". A memory "locked" with the same
	// namespace has the same locks, and messages of its own.
	Namespace string
	TTL       time.Duration           // how long a session stays held after its instance has died; default 30 s
	Wait      time.Duration           // as lockedmemory.Options.Wait, also of a Create or Delete outside a run
	Busy      lockedmemory.BusyPolicy // what a run does while its session is busy; default Queue
	Grace     time.Duration           // of lockedmemory.Interrupt, to store what KeepPartial keeps; default: none
	After     time.Duration           // of lockedmemory.Interrupt: the age from which it ends a run; default: none
	MaxHold   time.Duration           // the lease of a cancelled run ends at this age; default 10 min

	// Interruptible ends the context of a run at once when it is stopped, by a subscription of the Locker.
	// Default: at the next renewal.
	Interruptible bool

	// Stream yields each event when the agent sends it, and done after the turn is stored. If the store refuses
	// the turn, the stream ends with an error and without done: what the reader saw is not kept. Plugins see the
	// events later, and what they change is stored, but not streamed. So leave Stream off if a plugin removes
	// text that no user may see. A reader that leaves does not end its run: the run goes on to be stored, at most
	// for MaxHold. But a run that still waits, or that is inside a Turn or a run, ends with its reader.
	Stream bool
	// EndWithReader ends the run of a reader that leaves, with Stream, too.
	EndWithReader bool

	// KeepPartial stores the events of a run that is stopped or interrupted, up to that moment, if the grace
	// lasts. The turn and the done event have [Stopped] in their metadata, and a call without a result has the
	// result "stopped". Default: nothing of the run is stored. It needs the sessions of the Runner.
	KeepPartial bool

	// IdleTTL is how long a session is kept after its last run: 1 s or more, in whole milliseconds.
	// Default: for ever. Runners of one process agree on it for a URL and namespace.
	IdleTTL time.Duration
	// MaxTurns is how many turns of a session are kept at most: the newest, up to 1,000,000,000. Default:
	// all. Runners of one process agree on it for a URL and namespace. An Update counts as one turn: one
	// without a new turn, too, and one that stores turns again which a plugin has changed.
	MaxTurns int
	// History is how many tokens the turns have that a run reads, as llm.SimpleTokenizer counts text, and
	// the calls of tools count too. Turns are read whole, the newest first. Plugins see these turns in
	// session.Turns, and [History] gives them to the model. Older turns stay stored. Default: 4000.
	History int

	// MessageID is the key of the message ID in the metadata of an input: a string of 1 to 512 bytes. An input
	// without the key has no ID. Default: "message_id". With a SessionService, no ID is read.
	MessageID string

	Plugins  []runtime.Plugin  // of Beluga, for all runs, in this order
	AgentID  string            // of the agent that sessions belong to; default: the ID() of the agent
	Observer distlock.Observer // of the locks and the sessions, a pointer as that of tracing.New; default: none
}

// withDefaults checks what no constructor below New checks.
func (o *Options) withDefaults() (Options, error) {
	var s Options
	if o != nil {
		s = *o
	}
	switch {
	case s.SessionService != nil && isNil(s.SessionService):
		return s, codes.Invalid("Options.SessionService is a nil %T: leave it out for the sessions of the Runner", s.SessionService)
	case s.SessionService != nil && (s.Store != "" || s.IdleTTL != 0 || s.MaxTurns != 0 || s.MessageID != "" || s.KeepPartial):
		return s, codes.Invalid("Options.Store, IdleTTL, MaxTurns, MessageID and KeepPartial are for the sessions of the Runner: " +
			"leave them out, or leave out SessionService")
	case slices.ContainsFunc(s.Plugins, isNil[runtime.Plugin]):
		return s, codes.Invalid("Options.Plugins has a nil plugin: leave it out")
	case s.MaxHold < 0 || s.History < 0:
		return s, codes.Invalid("Options.MaxHold is %s and History is %d, but neither must be negative", s.MaxHold, s.History)
	}
	s.MaxHold = cmp.Or(s.MaxHold, 10*time.Minute)
	s.History = cmp.Or(s.History, 4000)
	s.MessageID = cmp.Or(s.MessageID, "message_id")
	return s, nil
}

// ofLocks returns the options of the Locker. The waits of runs are not among them, so that Runners with
// different waits share the Locker.
func (o *Options) ofLocks() distlock.Options {
	return distlock.Options{Namespace: o.Namespace, TTL: o.TTL, Interruptible: o.Interruptible, Observer: o.Observer}
}

// ofSessions returns what the store keeps.
func (o *Options) ofSessions() storedriver.Retention {
	keep := storedriver.Retention{Namespace: "run", IdleTTL: o.IdleTTL, MaxExchanges: o.MaxTurns}
	if o.Namespace != "" {
		keep.Namespace = o.Namespace + ":run"
	}
	return keep
}

var errEmptyID = fmt.Errorf("%w: the session ID is empty; nothing was done: give the ID of the conversation",
	distlock.ErrInvalidKey)
