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
	locker    *distlock.Locker
	key       lockedmemory.KeyFunc
	sessionID string // of all contexts, unless empty
	apart     bool   // the inner memory keeps the sessions of contexts apart
	maxHold   time.Duration
	lockedmemory.Options
}

// use is a set of functions that accept an option.
type use int

const (
	forMemories use = 1 << iota
	forRuns
	forSessions
	forServices
)

// newOption makes an option. If it is not valid, its function refuses it with the text of wrong.
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

// settingsOf applies the options. It also refuses a nil Locker.
func settingsOf(locker *distlock.Locker, opts []Option, at use) (settings, error) {
	s := settings{locker: locker}
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
	return s, s.chooseKey(at == forMemories)
}

// chooseKey sets the key, for another memory or for a session store, which keeps sessions apart.
func (s *settings) chooseKey(inner bool) error {
	switch {
	case s.key != nil && s.sessionID != "":
		return invalid("WithKey and WithSessionID both set the session: leave one of them out")
	case inner && !s.apart && s.sessionID == "":
		return invalid(`all sessions and tenants would share the inner memory, which is the option "inner" of New: ` +
			`use WithSessionID or "session_id", and make one memory for each conversation, or use ` +
			`WithInnerSeparatesSessions or "inner_separates_sessions" if the inner memory keeps the sessions of contexts apart`)
	case s.sessionID != "" && inner: // one conversation for all tenants
		s.key = lockedmemory.FixedKey(escape.Replace(s.sessionID))
	case s.sessionID != "": // one session for each tenant
		id := s.sessionID
		s.key = func(ctx context.Context) (string, error) { return SessionKey(core.WithSessionID(ctx, id)) }
	case s.key == nil:
		s.key = SessionKey
	}
	return nil
}

// WithKey sets the function that returns the key of a context's session. Default: [SessionKey]. In
// [LockRun] and [WrapSessions], core.GetSessionID of that context is the run's session ID.
func WithKey(key lockedmemory.KeyFunc) Option {
	return newOption("WithKey", forMemories|forRuns|forSessions, key != nil,
		"WithKey has a nil KeyFunc: leave it out for SessionKey", func(s *settings) { s.key = key })
}

// WithSessionID is for an inner memory that keeps one conversation, such as all memories of Beluga.
// The memory's session is id, and the session and tenant of contexts have no effect. Make one
// memory for each conversation of each tenant, with different IDs.
func WithSessionID(id string) Option {
	return newOption("WithSessionID", forMemories, id != "", "WithSessionID is empty: give the ID of the conversation",
		func(s *settings) { s.sessionID = id })
}

// WithInnerSeparatesSessions is for an inner memory that keeps the sessions and tenants of contexts
// apart. No memory of Beluga does so. See [Wrap].
func WithInnerSeparatesSessions() Option {
	return newOption("WithInnerSeparatesSessions", forMemories, true, "", func(s *settings) { s.apart = true })
}

// WithWait bounds the wait of a turn, of a run, and of a Save or Clear outside a turn for its
// session. Default: lockedmemory.DefaultWait, which is 5 minutes. Negative: without a bound.
func WithWait(wait time.Duration) Option {
	return newOption("WithWait", forMemories|forRuns|forServices, wait != 0,
		fmt.Sprintf("WithWait has 0: leave it out for %s, or use WithBusy(lockedmemory.Refuse)", lockedmemory.DefaultWait),
		func(s *settings) { s.Wait = wait })
}

// WithBusy sets what a turn or run does while its session is busy. Default: lockedmemory.Wait.
func WithBusy(policy lockedmemory.BusyPolicy) Option {
	return newOption("WithBusy", forMemories|forRuns, policy == lockedmemory.Wait || policy == lockedmemory.Refuse,
		fmt.Sprintf("WithBusy has %d, which is no BusyPolicy: use lockedmemory.Wait or lockedmemory.Refuse", policy),
		func(s *settings) { s.Busy = policy })
}

// WithFailOpen lets a memory continue without the lock while the lock service is unavailable, see
// lockedmemory.Options.FailOpen.
func WithFailOpen() Option {
	return newOption("WithFailOpen", forMemories, true, "", func(s *settings) { s.FailOpen = true })
}

// WithMaxHold sets the age at which the lease of a cancelled run is released, if the end of the run
// is still unknown. Default: MaxHold of the Locker's Options, or 10 minutes without a MaxHold.
func WithMaxHold(age time.Duration) Option {
	return newOption("WithMaxHold", forRuns, age > 0,
		fmt.Sprintf("WithMaxHold has %s, but must be positive: leave it out for the Locker's, or 10m", age),
		func(s *settings) { s.maxHold = age })
}

var errNoSession = errors.New("the context names no session: put its ID there with core.WithSessionID")

// SessionKey is the lockedmemory.KeyFunc for contexts of Beluga. It refuses a context without a
// session. The key is the session of core.GetSessionID. If core.GetTenant names a tenant, the
// tenant and a colon precede the session. In both IDs, a colon is written as %3A and a percent sign
// as %25, so that no two sessions have the same key.
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

// keyFor returns the key of a session, with the errors of lockedmemory.
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
