// Package pace sets how often the Lockers of tests renew their leases, and how long random tests play.
package pace

import (
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// Renew sets the period of renewal. Negative: none.
func Renew(o *distlock.Options, every time.Duration) *distlock.Options {
	o.RenewEvery = every
	return o
}

// Rounds returns how many of n rounds a random test plays: a fortieth under the race detector, which makes
// a round cost five times as much, and all without it, as mutants and the last step of make test-all do.
func Rounds(n int) int {
	if raced {
		return max(1, n/40)
	}
	return n
}
