package distlock

import "time"

// CallOption changes one call of [Locker.Acquire], [Locker.TryAcquire], [Locker.Do] or
// [Locker.TryDo], or one Turn of package lockedmemory. A call that joins a lease ignores the options.
type CallOption func(*callOptions)

type callOptions struct{ ttl, wait time.Duration }

// WithTTL sets the TTL of one lease. 0 means Options.TTL. If ttl is out of the range of Options.TTL,
// the call fails with [ErrInvalidOption]. A lease with a TTL of its own has no local handoff: each
// such lease is a grant of the backend.
func WithTTL(ttl time.Duration) CallOption {
	return func(o *callOptions) { setOption(&o.ttl, ttl) }
}

// WithWait sets the longest wait of one call. 0 means Options.Wait, negative that ctx alone decides.
// A call that does not wait for the lock waits for the backend's answer at most that long.
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
