package sessionstore

import (
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// Options configure a [Store]. The zero value of a field, and nil Options, mean the defaults.
type Options struct {
	// Namespace begins every key of the store: at most 128 bytes of text without control characters and braces. Default: "session".
	Namespace string
	// IdleTTL is how long a session with an exchange is kept after its last use: a Save, a Clear, or
	// the first access of a lease. Whole milliseconds, at least one second. Default: for ever.
	// A session without an exchange is kept for 24 hours.
	IdleTTL time.Duration
	// MaxExchanges is how many exchanges of a session are kept at most: the last turns, whole. The
	// newest turn is kept whole, also if it is longer. Default: all.
	MaxExchanges int
	// Window is how many exchanges Load returns at most: the last turns, whole. The newest turn is
	// returned whole, also if it is longer. Default: all that are kept.
	Window int
	// MaxMessage is the size of an encoded message, in bytes, above which Save refuses it. At most 256 MiB. Default: 8 MiB.
	MaxMessage int
	// RememberTurns is how long a turn ID is known after its last stored Save, also through Clear and
	// trimming: a Save that is repeated within this time is stored once. Whole milliseconds, at least
	// one second. Default: 24 hours.
	RememberTurns time.Duration
	// Broken says what Load, Search and Exchanges do with an entry that cannot be read. Default: Fail.
	Broken Broken
	// Logger takes a line for each entry that Skip leaves out. Default: slog.Default().
	Logger *slog.Logger
}

// Broken says what a read does with an entry that cannot be read.
type Broken int

const (
	// Fail ends the call with an [EntryError].
	Fail Broken = iota
	// Skip leaves the entry out, and logs its place and the reason.
	Skip
)

const (
	maxMaxMessage   = 256 << 20
	maxMaxExchanges = 1_000_000_000
	maxTime         = 10 * 365 * 24 * time.Hour
	maxNamespace    = 128
)

// withDefaults returns the options with the defaults filled in, or says which one is out of range.
func (opts *Options) withDefaults() (o Options, err error) {
	if opts != nil {
		o = *opts
	}
	if o.Namespace == "" {
		o.Namespace = "session"
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 8 << 20
	}
	if o.RememberTurns == 0 {
		o.RememberTurns = 24 * time.Hour
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case len(o.Namespace) > maxNamespace || !utf8.ValidString(o.Namespace) || strings.ContainsAny(o.Namespace, "{}") ||
		strings.ContainsFunc(o.Namespace, unicode.IsControl):
		return o, invalidOption("Namespace is %q, but must be at most %d bytes of UTF-8 without control characters and braces",
			o.Namespace, maxNamespace)
	case o.IdleTTL != 0 && (o.IdleTTL < time.Second || o.IdleTTL > maxTime || o.IdleTTL%time.Millisecond != 0):
		return o, invalidOption("IdleTTL is %s, but must be from 1s to %s, in whole milliseconds, or 0 to keep sessions for ever", o.IdleTTL, maxTime)
	case o.MaxExchanges < 0 || o.MaxExchanges > maxMaxExchanges:
		return o, invalidOption("MaxExchanges is %d, but must be from 1 to %d, or 0 to keep all", o.MaxExchanges, maxMaxExchanges)
	case o.Window < 0:
		return o, invalidOption("Window is %d, but must be positive, or 0 to load all", o.Window)
	case o.MaxMessage < 1 || o.MaxMessage > maxMaxMessage:
		return o, invalidOption("MaxMessage is %d bytes, but must be from 1 to %d", o.MaxMessage, maxMaxMessage)
	case o.RememberTurns < time.Second || o.RememberTurns > maxTime || o.RememberTurns%time.Millisecond != 0:
		return o, invalidOption("RememberTurns is %s, but must be from 1s to %s, in whole milliseconds", o.RememberTurns, maxTime)
	case o.Broken != Fail && o.Broken != Skip:
		return o, invalidOption("Broken is %d, but must be Fail or Skip", o.Broken)
	}
	return o, nil
}

func (o *Options) settings() driver.Settings {
	return driver.Settings{Namespace: o.Namespace, IdleTTL: o.IdleTTL, MaxExchanges: o.MaxExchanges, Remember: o.RememberTurns}
}
