package belugarunner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Option changes a default of [New].
type Option func(*settings) error

type settings struct {
	lockedmemory.Options
	locks    distlock.Options
	maxHold  time.Duration
	plugins  []runtime.Plugin
	sessions runtime.SessionService
	storeURL string
	keep     storedriver.Retention
	agentID  string
	tokens   int // of the turns that a run reads
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

func apply(opts []Option) (settings, error) {
	s := settings{tokens: defaultHistory}
	for _, opt := range opts {
		if opt == nil {
			return s, codes.Invalid("an Option is nil: leave it out")
		}
		if err := opt(&s); err != nil {
			return s, err
		}
	}
	if s.sessions != nil && (s.storeURL != "" || s.keep.IdleTTL != 0 || s.keep.MaxExchanges != 0) {
		return s, codes.Invalid("WithStore, WithIdleTTL and WithMaxTurns are for the sessions of the Runner: " +
			"leave them out, or leave out WithSessionService")
	}
	s.keep.Namespace = cmp.Or(s.keep.Namespace, "run")
	return s, nil
}

// WithSessionService sets a service of the application for the sessions, that all instances share. Runs call
// its Get, Create and Update under the lock of the session. Default: sessions on the server of [WithStore].
func WithSessionService(service runtime.SessionService) Option {
	return newOption(!isNil(service), "WithSessionService has a nil service: leave it out for the sessions of the Runner",
		func(s *settings) { s.sessions = service })
}

// WithWait bounds the wait of a run, and of a Create or Delete outside a run, for its session.
// Default: lockedmemory.DefaultWait, which is 5 minutes. Negative: without a bound.
func WithWait(wait time.Duration) Option {
	return newOption(wait != 0,
		fmt.Sprintf("WithWait has 0: leave it out for %s, or use WithBusy(lockedmemory.Refuse)", lockedmemory.DefaultWait),
		func(s *settings) { s.Wait = wait })
}

// WithBusy sets what a run does while its session is busy. Default: lockedmemory.Queue.
func WithBusy(policy lockedmemory.BusyPolicy) Option {
	return newOption(policy == lockedmemory.Queue || policy == lockedmemory.Refuse,
		fmt.Sprintf("WithBusy has %d, which is no BusyPolicy: use lockedmemory.Queue or lockedmemory.Refuse", policy),
		func(s *settings) { s.Busy = policy })
}

// WithMaxHold sets the age at which the lease of a cancelled run is released, if its worker is still at
// work. Default: 10 minutes.
func WithMaxHold(age time.Duration) Option {
	return newOption(age > 0,
		fmt.Sprintf("WithMaxHold has %s, but must be positive: leave it out for 10m", age),
		func(s *settings) { s.maxHold = age })
}

// WithPlugins adds plugins of Beluga to the runs of [New], in this order. All runs share them.
func WithPlugins(plugins ...runtime.Plugin) Option {
	return newOption(!slices.ContainsFunc(plugins, isNil[runtime.Plugin]),
		"WithPlugins has a nil plugin: leave it out", func(s *settings) { s.plugins = append(s.plugins, plugins...) })
}

// WithStore sets the URL of the sessions: one Redis or PostgreSQL. Default: the URL of the locks. A
// quorum keeps locks alone, and needs it.
func WithStore(url string) Option {
	return newOption(
		url != "" && !strings.HasPrefix(url, "mem:") && !strings.HasPrefix(url, "redlock+"),
		`WithStore needs the URL of one Redis or PostgreSQL, such as "postgres://localhost/chat"`,
		func(s *settings) { s.storeURL = url })
}

// WithNamespace sets the text before all keys, so that applications can share a server: name for the
// locks, and name:run for the sessions. Default: "distlock" and "run". A memory "locked" with the
// same namespace has the same locks, and messages of its own.
func WithNamespace(name string) Option {
	return newOption(name != "", "WithNamespace is empty: leave it out for the default",
		func(s *settings) { s.locks.Namespace, s.keep.Namespace = name, name+":run" })
}

// WithTTL sets how long a session stays held after its instance has died. Default: 30 s.
func WithTTL(ttl time.Duration) Option {
	return newOption(ttl >= distlock.MinTTL,
		fmt.Sprintf("WithTTL has %s, but must be %s or more: leave it out for 30s", ttl, distlock.MinTTL),
		func(s *settings) { s.locks.TTL = ttl })
}

// WithIdleTTL sets how long a session is kept after its last run: 1 s or more, in whole milliseconds.
// Default: for ever. Runners of one process agree on it for a URL and namespace.
func WithIdleTTL(ttl time.Duration) Option {
	return newOption(ttl >= time.Second,
		fmt.Sprintf("WithIdleTTL has %s, but must be 1s or more: leave it out to keep sessions for ever", ttl),
		func(s *settings) { s.keep.IdleTTL = ttl })
}

// WithMaxTurns sets how many turns of a session are kept at most: the newest, from 1 to 1,000,000,000.
// Default: all. Runners of one process agree on it for a URL and namespace. An Update counts as one turn:
// one without a new turn, too, and one that stores turns again which a plugin has changed.
func WithMaxTurns(n int) Option {
	return newOption(n > 0,
		fmt.Sprintf("WithMaxTurns has %d, but must be positive: leave it out to keep all turns", n),
		func(s *settings) { s.keep.MaxExchanges = n })
}

const defaultHistory = 4000

// WithHistory sets how many tokens the turns have that a run reads, as llm.SimpleTokenizer counts text,
// and the calls of tools count too. Turns are read whole, the newest first. Plugins see these turns in
// session.Turns, and [History] gives them to the model. Older turns stay stored. Default: 4000.
func WithHistory(tokens int) Option {
	return newOption(tokens > 0,
		fmt.Sprintf("WithHistory has %d, but must be positive: leave it out for %d", tokens, defaultHistory),
		func(s *settings) { s.tokens = tokens })
}

// WithAgentID sets the ID of the agent that sessions belong to. Default: the ID() of the agent.
func WithAgentID(id string) Option {
	return newOption(id != "", "WithAgentID is empty: leave it out for the ID of the agent",
		func(s *settings) { s.agentID = id })
}

var errEmptyID = fmt.Errorf("%w: the session ID is empty; nothing was done: give the ID of the conversation",
	distlock.ErrInvalidKey)
