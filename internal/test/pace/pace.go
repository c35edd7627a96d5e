// Package pace sets how often the Lockers of tests renew their leases.
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
