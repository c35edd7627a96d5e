package storedriver

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belugalock/belugalock/distlock"
)

// Retention says what a driver keeps, where, and for how long. The zero value of a field, and a nil
// Retention, mean the defaults.
type Retention struct {
	// Namespace begins every key of the store: at most 128 bytes of text without control characters
	// and braces. Default: "session", or as [Retention.Beside] says.
	Namespace string
	// IdleTTL is how long a session with an exchange is kept after its last use: a Save, a Clear, or
	// the first access of a lease. Whole milliseconds, at least one second. Default: for ever.
	// A session without an exchange is kept for 24 hours.
	IdleTTL time.Duration
	// MaxExchanges is how many exchanges of a session are kept at most: the last turns, whole. The
	// newest turn is kept whole, also if it is longer. Pinned exchanges are kept in addition, here and
	// under MaxAge. The first access of a lease removes older turns, until then reads return them. Default: all.
	MaxExchanges int
	// MaxAge is how old an exchange may become: reads leave older exchanges out. Its age counts from the
	// grant of its lease to the grant of the last lease that has used the session, both by the clock of the
	// lock service. So exchanges grow older with the next turn alone. The next first access of a lease
	// removes older turns, but the newest turn stays in the service until another one follows: set IdleTTL,
	// too. Whole milliseconds, at least one second. Default: for ever.
	MaxAge time.Duration
	// RememberIDs is how long an ID is known after its exchange was stored, also through Clear and
	// trimming: an Answer or SaveOnce that is repeated within this time is stored once. Whole
	// milliseconds, at least one second. Default: 24 hours.
	RememberIDs time.Duration
}

// Beside returns r with a default Namespace for sessions that are opened with their locks: that of the
// locks and ":session". So two applications with different namespaces share nothing.
func (r Retention) Beside(locks string) Retention {
	if r.Namespace == "" && locks != "" {
		r.Namespace = locks + ":session"
	}
	return r
}

// Since returns the lowest token of the exchanges that MaxAge keeps in a session that has seen a token: the
// microsecond of its grant. ⚑ Tokens are the only clock: that of a process may differ from them.
func (r Retention) Since(token int64) int64 {
	if r.MaxAge == 0 {
		return 0
	}
	return token - r.MaxAge.Microseconds()
}

// KeepEmpty is how long a session without an exchange is kept after its last access. The highest
// token of an expired session outlives the session for as long.
const KeepEmpty = 24 * time.Hour

// OldToken is the age from which a token is not admitted to a session of which nothing is known. A token
// is the microsecond of its grant. The hour that is left is for the clocks of two servers.
const OldToken = KeepEmpty - time.Hour

const (
	maxNamespace = 128
	maxExchanges = 1_000_000_000
	maxTime      = 10 * 365 * 24 * time.Hour
)

// WithDefaults returns r with the defaults filled in. It fails with distlock.ErrInvalidOption if a
// field is out of range.
func (r *Retention) WithDefaults() (Retention, error) {
	keep := *cmp.Or(r, &Retention{})
	keep.Namespace = cmp.Or(keep.Namespace, "session")
	keep.RememberIDs = cmp.Or(keep.RememberIDs, 24*time.Hour)
	lasts := func(d time.Duration) bool { return d >= time.Second && d <= maxTime && d%time.Millisecond == 0 }
	var problem string
	switch {
	case len(keep.Namespace) > maxNamespace || !utf8.ValidString(keep.Namespace) ||
		strings.ContainsAny(keep.Namespace, "{}") || strings.ContainsFunc(keep.Namespace, unicode.IsControl):
		problem = fmt.Sprintf("Namespace is %q, but must be at most %d bytes of UTF-8 without control characters and braces",
			keep.Namespace, maxNamespace)
	case keep.IdleTTL != 0 && !lasts(keep.IdleTTL):
		problem = outOfRange("IdleTTL", keep.IdleTTL) + ", or 0 to keep sessions for ever"
	case keep.MaxExchanges < 0 || keep.MaxExchanges > maxExchanges:
		problem = fmt.Sprintf("MaxExchanges is %d, but must be from 1 to %d, or 0 to keep all", keep.MaxExchanges,
			maxExchanges)
	case keep.MaxAge != 0 && !lasts(keep.MaxAge):
		problem = outOfRange("MaxAge", keep.MaxAge) + ", or 0 to keep exchanges for ever"
	case !lasts(keep.RememberIDs):
		problem = outOfRange("RememberIDs", keep.RememberIDs)
	default:
		return keep, nil
	}
	return keep, fmt.Errorf("%w: %s", distlock.ErrInvalidOption, problem)
}

func outOfRange(field string, d time.Duration) string {
	return fmt.Sprintf("%s is %s, but must be from 1s to %s, in whole milliseconds", field, d, maxTime)
}
