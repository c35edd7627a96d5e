package distlock

import "time"

// CallOption changes one call of a Locker, or one Turn of package lockedmemory.
type CallOption func(*callOptions)

type callOptions struct{ ttl, wait time.Duration }

// WithTTL sets the TTL of one lease. 0 means Options.TTL. A lease with its own TTL has no local handoff.
func WithTTL(ttl time.Duration) CallOption {
	return func(o *callOptions) { setOption(&o.ttl, ttl) }
}

// WithWait sets the longest wait of one call, for the lock or, in TryAcquire and TryDo, for the answer.
// 0 means Options.Wait, negative no limit but ctx.
func WithWait(wait time.Duration) CallOption {
	return func(o *callOptions) { setOption(&o.wait, wait) }
}

func setOption(field *time.Duration, value time.Duration) {
	if value != 0 {
		*field = value
	}
}

// callOptions returns the settings of one call.
func (l *Locker) callOptions(opts []CallOption) callOptions {
	o := callOptions{l.opts.TTL, l.opts.Wait}
	for _, set := range opts {
		set(&o)
	}
	return o
}
