package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// Option changes a default of [Wrap], [Middleware], [LockRun] or [WrapSessions].
type Option func(s *settings, at use) error

type settings struct {
	key      lockedmemory.KeyFunc
	keys     int  // how many options have set it
	apart    bool // the sessions of contexts do not share the inner memory
	wait     time.Duration
	busy     lockedmemory.BusyPolicy
	failOpen bool
	maxHold  time.Duration
}

// use is what an option has a meaning for.
type use int

const (
	forMemories use = 1 << iota
	forRuns
	forSessions
)

// newOption makes one that is refused with the text of wrong unless it is valid.
func newOption(name string, uses use, valid bool, wrong string, apply func(*settings)) Option {
	return func(s *settings, at use) error {
		switch {
		case !valid:
			return invalid("%s", wrong)
		case uses&at == 0:
			return invalid("%s has no meaning here: leave it out", name)
		}
		apply(s)
		return nil
	}
}

// settingsOf also refuses a nil Locker, which all functions with options take.
func settingsOf(locker *distlock.Locker, opts []Option, at use) (settings, error) {
	s := settings{key: SessionKey}
	if locker == nil {
		return s, invalid("the Locker is nil: make one with lockurl.Open, or take that of a Memory")
	}
	for _, opt := range opts {
		if opt == nil {
			return s, invalid("an Option is nil: leave it out")
		}
		if err := opt(&s, at); err != nil {
			return s, err
		}
	}
	if s.keys > 1 {
		return s, invalid("WithKey and WithSessionID both say which session it is: leave all out but one")
	}
	if at == forMemories && !s.apart {
		return s, invalid("all sessions and tenants would share the inner memory: use WithSessionID, and wrap one memory for each " +
			"conversation, or WithInnerSeparatesSessions if the inner memory keeps the sessions of contexts apart")
	}
	return s, nil
}

// WithKey sets the function that finds the session of a context. Default: [SessionKey]. For
// [LockRun] and [WrapSessions], key finds the run's session ID with core.GetSessionID.
func WithKey(key lockedmemory.KeyFunc) Option {
	return newOption("WithKey", forMemories|forRuns|forSessions, key != nil,
		"the KeyFunc of WithKey is nil: leave the option out for SessionKey", func(s *settings) { s.key, s.keys = key, s.keys+1 })
}

// WithSessionID is for an inner memory that keeps one conversation, as those of Beluga do. The
// memory's session is id, whatever session and tenant a context names. Make one memory for each
// conversation of each tenant, with IDs that differ.
func WithSessionID(id string) Option {
	return newOption("WithSessionID", forMemories, id != "", "the ID of WithSessionID is empty: give the ID of the conversation",
		func(s *settings) { s.key, s.keys, s.apart = oneConversation(id), s.keys+1, true })
}

// WithInnerSeparatesSessions says that the inner memory itself keeps the sessions and tenants of
// contexts apart. No memory of Beluga does. See [Wrap].
func WithInnerSeparatesSessions() Option {
	return newOption("WithInnerSeparatesSessions", forMemories, true, "", func(s *settings) { s.apart = true })
}

// WithWait is how long a turn, a run, and a Save or Clear outside a turn waits for its session at
// most. Default: lockedmemory.DefaultWait, which is 5 minutes. Negative: the context alone decides.
func WithWait(wait time.Duration) Option {
	return newOption("WithWait", forMemories|forRuns, wait != 0,
		fmt.Sprintf("WithWait has 0: leave it out for %s, or use WithBusy(lockedmemory.Refuse) not to wait", lockedmemory.DefaultWait),
		func(s *settings) { s.wait = wait })
}

// WithBusy is what a turn or run does when its session is busy. Default lockedmemory.Wait.
func WithBusy(policy lockedmemory.BusyPolicy) Option {
	return newOption("WithBusy", forMemories|forRuns, policy == lockedmemory.Wait || policy == lockedmemory.Refuse,
		fmt.Sprintf("WithBusy has %d, which is no BusyPolicy: use lockedmemory.Wait or lockedmemory.Refuse", policy),
		func(s *settings) { s.busy = policy })
}

// WithFailOpen lets a memory go on without the lock when the lock service is unavailable; see
// lockedmemory.Options.FailOpen.
func WithFailOpen() Option {
	return newOption("WithFailOpen", forMemories, true, "", func(s *settings) { s.failOpen = true })
}

// WithMaxHold is the age at which the lease of a cancelled run is released, if the run's end has not
// been seen by then. Default: MaxHold of the Locker's Options, or 10 minutes if that is not set.
func WithMaxHold(age time.Duration) Option {
	return newOption("WithMaxHold", forRuns, age > 0,
		fmt.Sprintf("WithMaxHold has %s, but must be positive: leave it out for the Locker's, or 10m", age),
		func(s *settings) { s.maxHold = age })
}

var errNoSession = errors.New("the context names no session: put its ID there with core.WithSessionID")

// SessionKey is the lockedmemory.KeyFunc for contexts of Beluga: it tells sessions apart by
// core.GetTenant and core.GetSessionID. A context without a session is refused. The key is the ID
// of the session, after that of the tenant and a colon if there is a tenant. In both IDs, a colon
// is written as %3A and a percent sign as %25, so that no two sessions have one key.
func SessionKey(ctx context.Context) (string, error) {
	session := core.GetSessionID(ctx)
	if session == "" {
		return "", errNoSession
	}
	key := escape.Replace(session)
	if tenant := core.GetTenant(ctx); tenant != "" {
		key = escape.Replace(string(tenant)) + ":" + key
	}
	return key, nil
}

// keyFor asks key for the session, as lockedmemory does.
func keyFor(ctx context.Context, sessionID string, key lockedmemory.KeyFunc) (string, error) {
	k, err := key(core.WithSessionID(ctx, sessionID))
	if err == nil && k == "" {
		err = errNoSession
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", distlock.ErrInvalidKey, err)
	}
	return k, nil
}

var escape = strings.NewReplacer("%", "%25", ":", "%3A")

// oneSession is the KeyFunc of a session store with one session for each tenant.
func oneSession(id string) lockedmemory.KeyFunc {
	return func(ctx context.Context) (string, error) { return SessionKey(core.WithSessionID(ctx, id)) }
}

// oneConversation is the KeyFunc of a memory that keeps one conversation for all tenants.
func oneConversation(id string) lockedmemory.KeyFunc {
	return lockedmemory.FixedKey(escape.Replace(id))
}
