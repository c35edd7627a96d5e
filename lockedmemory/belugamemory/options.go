package belugamemory

import (
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// Option changes a default of [Wrap], [Middleware], [LockRun] or [WrapSessions].
type Option func(*settings) error

type settings struct {
	key      lockedmemory.KeyFunc
	wait     time.Duration
	busy     lockedmemory.BusyPolicy
	failOpen bool
	maxHold  time.Duration
	given    []given
}

type given struct {
	option string
	use    use
}

// use is what an option has a meaning for.
type use int

const (
	forMemories use = 1 << iota
	forRuns
	forSessions
)

func settingsOf(opts []Option, at use) (settings, error) {
	s := settings{key: SessionKey}
	for _, opt := range opts {
		if opt == nil {
			return s, fmt.Errorf("%w: an Option is nil: leave it out", distlock.ErrInvalidOption)
		}
		if err := opt(&s); err != nil {
			return s, fmt.Errorf("%w: %w", distlock.ErrInvalidOption, err)
		}
	}
	keys := 0
	for _, g := range s.given {
		if g.use&at == 0 {
			return s, fmt.Errorf("%w: %s has no meaning here: leave it out", distlock.ErrInvalidOption, g.option)
		}
		if g.option == "WithKey" || g.option == "WithSessionID" {
			keys++
		}
	}
	if keys > 1 {
		return s, fmt.Errorf("%w: WithKey and WithSessionID both say which session it is: leave all out but one", distlock.ErrInvalidOption)
	}
	return s, nil
}

// WithKey has key tell sessions apart, in place of [SessionKey]. For [LockRun] and [WrapSessions], key finds the run's session ID
// with core.GetSessionID.
func WithKey(key lockedmemory.KeyFunc) Option {
	return func(s *settings) error {
		if key == nil {
			return fmt.Errorf("the KeyFunc of WithKey is nil: leave the option out for SessionKey")
		}
		s.key = key
		s.given = append(s.given, given{"WithKey", forMemories | forRuns | forSessions})
		return nil
	}
}

// WithSessionID is for a memory that keeps one conversation, as those of Beluga do: id is its session, whatever session and tenant a context
// names. Such a memory knows of no tenants, so make one for each conversation of each, with IDs that tell them apart.
func WithSessionID(id string) Option {
	return func(s *settings) error {
		if id == "" {
			return fmt.Errorf("the ID of WithSessionID is empty: leave the option out to use the session of the context")
		}
		s.key = oneConversation(id)
		s.given = append(s.given, given{"WithSessionID", forMemories})
		return nil
	}
}

// WithWait is how long a turn, a run, and a Save or Clear outside a turn waits for its session at most.
// Default: lockedmemory.DefaultWait. Negative: the context alone decides.
func WithWait(wait time.Duration) Option {
	return func(s *settings) error {
		if wait == 0 {
			return fmt.Errorf("WithWait has 0: leave it out for %s, or use WithBusy(lockedmemory.Refuse) not to wait", lockedmemory.DefaultWait)
		}
		s.wait = wait
		s.given = append(s.given, given{"WithWait", forMemories | forRuns})
		return nil
	}
}

// WithBusy is what a turn or run does when its session is busy. Default lockedmemory.Wait.
func WithBusy(policy lockedmemory.BusyPolicy) Option {
	return func(s *settings) error {
		if policy != lockedmemory.Wait && policy != lockedmemory.Refuse {
			return fmt.Errorf("WithBusy has %d, which is no BusyPolicy: use lockedmemory.Wait or lockedmemory.Refuse", policy)
		}
		s.busy = policy
		s.given = append(s.given, given{"WithBusy", forMemories | forRuns})
		return nil
	}
}

// WithFailOpen lets a memory go on without the lock when the lock service is unavailable; see lockedmemory.Options.FailOpen.
func WithFailOpen() Option {
	return func(s *settings) error {
		s.failOpen = true
		s.given = append(s.given, given{"WithFailOpen", forMemories})
		return nil
	}
}

// WithMaxHold is the age at which the lease of a run that was cancelled is given back, if the run's end has not been seen by then.
// Default: MaxHold of the Locker's Options, or 10 minutes if that is not set. See [LockRun].
func WithMaxHold(age time.Duration) Option {
	return func(s *settings) error {
		if age <= 0 {
			return fmt.Errorf("WithMaxHold has %s, but must be positive: leave it out for the Locker's, or 10m", age)
		}
		s.maxHold = age
		s.given = append(s.given, given{"WithMaxHold", forRuns})
		return nil
	}
}
