package distlock

import (
	"cmp"
	"time"
)

// CallOption changes one call of a Locker, or one Turn of lockedmemory.
type CallOption func(*callOptions)

// callOptions are the settings of one acquisition.
type callOptions struct {
	ttl   time.Duration
	wait  time.Duration // negative: until ctx ends; of a single attempt it bounds the time for the answer
	frees bool          // see driver.AcquireRequest
	work  string        // see fencing.ForWork
}

// WithTTL sets the TTL of one lease. 0 means Options.TTL. A lease with its own TTL has no local handoff.
func WithTTL(ttl time.Duration) CallOption {
	return func(o *callOptions) { o.ttl = cmp.Or(ttl, o.ttl) }
}

// WithWait sets the longest wait of one call; of TryAcquire and TryDo, the time for the answer. 0 means
// Options.Wait, negative no limit but ctx.
func WithWait(wait time.Duration) CallOption {
	return func(o *callOptions) { o.wait = cmp.Or(wait, o.wait) }
}
