package belugarunner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

// Option changes a default of [LockRun], [WrapSessions] or [NewSessionService].
type Option func(s *settings, at use) error

type settings struct {
	locker  *distlock.Locker
	key     lockedmemory.KeyFunc
	maxHold time.Duration
	lockedmemory.Options
}

// use is a set of functions that accept an option.
type use int

const (
	forRuns use = 1 << iota
	forSessions
	forServices
)

// newOption makes an option. If it is not valid, its function refuses it with the text of wrong.
func newOption(name string, uses use, valid bool, wrong string, apply func(*settings)) Option {
	return func(s *settings, at use) error {
		switch {
		case !valid:
			return codes.Invalid("%s", wrong)
		case uses&at == 0:
			return codes.Invalid("%s has no meaning here: leave it out", name)
		}
		apply(s)
		return nil
	}
}

// settingsOf applies the options. It also refuses a nil Locker.
func settingsOf(locker *distlock.Locker, opts []Option, at use) (settings, error) {
	s := settings{locker: locker, key: belugamemory.SessionKey}
	if locker == nil {
		return s, codes.Invalid("the Locker is nil: make one with lockurl.Open, or take that of a Memory")
	}
	for _, opt := range opts {
		if opt == nil {
			return s, codes.Invalid("an Option is nil: leave it out")
		}
		if err := opt(&s, at); err != nil {
			return s, err
		}
	}
	return s, nil
}

// WithKey sets the function that returns the key of a session. Default: [belugamemory.SessionKey].
// In its context, core.GetSessionID is the session ID of the run.
func WithKey(key lockedmemory.KeyFunc) Option {
	return newOption("WithKey", forRuns|forSessions, key != nil,
		"WithKey has a nil KeyFunc: leave it out for SessionKey", func(s *settings) { s.key = key })
}

// WithWait bounds the wait of a run, and of a Create or Delete outside a run, for its session.
// Default: lockedmemory.DefaultWait, which is 5 minutes. Negative: without a bound.
func WithWait(wait time.Duration) Option {
	return newOption("WithWait", forRuns|forServices, wait != 0,
		fmt.Sprintf("WithWait has 0: leave it out for %s, or use WithBusy(lockedmemory.Refuse)", lockedmemory.DefaultWait),
		func(s *settings) { s.Wait = wait })
}

// WithBusy sets what a run does while its session is busy. Default: lockedmemory.Wait.
func WithBusy(policy lockedmemory.BusyPolicy) Option {
	return newOption("WithBusy", forRuns, policy == lockedmemory.Wait || policy == lockedmemory.Refuse,
		fmt.Sprintf("WithBusy has %d, which is no BusyPolicy: use lockedmemory.Wait or lockedmemory.Refuse", policy),
		func(s *settings) { s.Busy = policy })
}

// WithMaxHold sets the age at which the lease of a cancelled run is released, if the end of the run
// is still unknown. Default: MaxHold of the Locker's Options, or 10 minutes without a MaxHold.
func WithMaxHold(age time.Duration) Option {
	return newOption("WithMaxHold", forRuns, age > 0,
		fmt.Sprintf("WithMaxHold has %s, but must be positive: leave it out for the Locker's, or 10m", age),
		func(s *settings) { s.maxHold = age })
}

// keyFor returns the key of a session, with the errors of lockedmemory.
func keyFor(ctx context.Context, sessionID string, key lockedmemory.KeyFunc) (string, error) {
	k, err := key(core.WithSessionID(ctx, sessionID))
	if err == nil && k == "" {
		err = errors.New("the KeyFunc returned an empty key")
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", distlock.ErrInvalidKey, err)
	}
	return k, nil
}
