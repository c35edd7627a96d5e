package distlock

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/calls"
)

// Info is the backend's view of a lock. A local handoff does not reach the backend: Fence is then
// lower than the present lease's, and Age up to 10 ms higher.
type Info struct {
	Held    bool
	Holder  string        // the holder's Options.Holder
	Fence   int64         // the token of the grant
	Age     time.Duration // since the grant, by the backend's clock
	TTL     time.Duration // until the lock expires without a renewal; negative: it does not expire
	Waiters int           // processes in the backend's queue; 0 if the backend keeps none
}

// Inspect returns the backend's view of the lock on key, for people and dashboards: it may be outdated
// at once. Errors: [ErrInvalidKey], [ErrUnavailable], [ErrRefused], [ErrClosed], the error of ctx.
func (l *Locker) Inspect(ctx context.Context, key string) (Info, error) {
	if err := validKey(key); err != nil {
		return Info{}, err
	}
	s, err := l.state(ctx, "inspect", key)
	if err != nil {
		return Info{}, err
	}
	return Info{Held: s.Held, Holder: s.Holder, Fence: s.Fence, Age: s.Age, TTL: s.TTL, Waiters: s.Waiters}, nil
}

// Ping returns nil if the backend answers a read, for readiness probes. Errors: as [Locker.Inspect].
func (l *Locker) Ping(ctx context.Context) error {
	_, err := l.state(ctx, "ping", "ping")
	return err
}

// state reads a lock from the backend, for at most min(5 s, TTL).
func (l *Locker) state(ctx context.Context, operation, key string) (driver.State, error) {
	var none driver.State
	if !l.enter() {
		return none, ErrClosed
	}
	defer l.end()
	if ctx.Err() != nil {
		return none, left(operation, ctx)
	}
	s, err := call(ctx, l, min(firstAnswer, l.opts.TTL),
		func(ctx context.Context) (driver.State, error) { return l.driver.Inspect(ctx, l.name(key)) },
		func(driver.State, error) {})
	switch {
	case err == calls.ErrLeft:
		return none, left(operation, ctx)
	case err != nil:
		return none, failedRead(operation, err)
	}
	return s, nil
}
