package distlock

import (
	"cmp"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/seam"
)

// CallOption changes one call of a Locker, or one Turn of lockedmemory.
type CallOption func(*seam.Call)

// WithTTL sets the TTL of one lease. Another TTL excludes local handoffs.
func WithTTL(ttl time.Duration) CallOption {
	return func(c *seam.Call) { c.TTL = cmp.Or(ttl, c.TTL) }
}

// WithWait sets the longest wait of one call; of TryAcquire and TryDo, the time for the answer. Negative:
// until ctx ends.
func WithWait(wait time.Duration) CallOption {
	return func(c *seam.Call) { c.Wait = cmp.Or(wait, c.Wait) }
}
