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
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

// Option changes a default of [Wrap] or [Middleware].
type Option func(*settings) error

type settings struct {
	locker         *distlock.Locker
	key            lockedmemory.KeyFunc
	sessionID      string // of all contexts, unless empty
	innerSeparates bool   // the sessions of contexts
	lockedmemory.Options
}

// newOption makes an option. If it is not valid, its function refuses it with the text of wrong.
func newOption(valid bool, wrong string, apply func(*settings)) Option {
	return func(s *settings) error {
		if !valid {
			return codes.Invalid("%s", wrong)
		}
		apply(s)
		return nil
	}
}

// settingsOf applies the options. It also refuses a nil Locker.
func settingsOf(locker *distlock.Locker, opts []Option) (settings, error) {
	s := settings{locker: locker}
	if locker == nil {
		return s, codes.Invalid("the Locker is nil: make one with lockurl.Open, or take that of a Memory")
	}
	for _, opt := range opts {
		if opt == nil {
			return s, codes.Invalid("an Option is nil: leave it out")
		}
		if err := opt(&s); err != nil {
			return s, err
		}
	}
	return s, s.chooseKey(true)
}

// chooseKey sets the key, for another memory or for a session store, which keeps sessions apart.
func (s *settings) chooseKey(inner bool) error {
	switch {
	case s.key != nil && s.sessionID != "":
		return codes.Invalid("WithKey and WithSessionID both set the session: leave one of them out")
	case inner && !s.innerSeparates && s.sessionID == "":
		return codes.Invalid(`all sessions and tenants would share the inner memory, which is the option "inner" of New: ` +
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

// WithKey sets the function that returns the key of a context's session. Default: [SessionKey].
func WithKey(key lockedmemory.KeyFunc) Option {
	return newOption(key != nil,
		"WithKey has a nil KeyFunc: leave it out for SessionKey", func(s *settings) { s.key = key })
}

// WithSessionID is for an inner memory that keeps one conversation, such as all memories of Beluga.
// The memory's session is id, and the session and tenant of contexts have no effect. Make one
// memory for each conversation of each tenant, with different IDs.
func WithSessionID(id string) Option {
	return newOption(id != "", "WithSessionID is empty: give the ID of the conversation",
		func(s *settings) { s.sessionID = id })
}

// WithInnerSeparatesSessions is for an inner memory that keeps the sessions and tenants of contexts
// apart. No memory of Beluga does so. See [Wrap].
func WithInnerSeparatesSessions() Option {
	return newOption(true, "", func(s *settings) { s.innerSeparates = true })
}

// WithWait bounds the wait of a turn, and of a Save or Clear outside a turn, for its session.
// Default: lockedmemory.DefaultWait, which is 5 minutes. Negative: without a bound.
func WithWait(wait time.Duration) Option {
	return newOption(wait != 0,
		fmt.Sprintf("WithWait has 0: leave it out for %s, or use WithBusy(lockedmemory.Refuse)", lockedmemory.DefaultWait),
		func(s *settings) { s.Wait = wait })
}

// WithBusy sets what a turn does while its session is busy. Default: lockedmemory.Queue.
func WithBusy(policy lockedmemory.BusyPolicy) Option {
	return newOption(policy == lockedmemory.Queue || policy == lockedmemory.Refuse,
		fmt.Sprintf("WithBusy has %d, which is no BusyPolicy: use lockedmemory.Queue or lockedmemory.Refuse", policy),
		func(s *settings) { s.Busy = policy })
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

var escape = strings.NewReplacer("%", "%25", ":", "%3A")
