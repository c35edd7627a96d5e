package distlock

import (
	"cmp"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/seam"
)

// CallOption changes one call of a Locker, or one Turn of lockedmemory.
type CallOption func(*seam.Call)

// WithTTL sets the TTL of one lease. 0 means Options.TTL. A lease with its own TTL has no local handoff.
func WithTTL(ttl time.Duration) CallOption {
	return func(c *seam.Call) { c.TTL = cmp.Or(ttl, c.TTL) }
}

// WithWait sets the longest wait of one call; of TryAcquire and TryDo, the time for the answer. 0 means
// Options.Wait, negative no limit but ctx.
func WithWait(wait time.Duration) CallOption {
	return func(c *seam.Call) { c.Wait = cmp.Or(wait, c.Wait) }
}
