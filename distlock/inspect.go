package distlock

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Info is what the backend has. After a local handoff, Fence is too low.
type Info struct {
	Held    bool
	Holder  string        // the holder's Options.Holder
	Fence   int64         // the token of the grant
	Age     time.Duration // since the grant, up to 10 ms before the present lease
	TTL     time.Duration // until the lock expires without a renewal; negative: it does not expire
	Waiters int           // processes in the backend's queue; 0 if the backend keeps none
}

// Inspect asks the backend. It fails with [ErrInvalidKey], or as [Locker.Ping].
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

// Ping fails with [ErrUnavailable], [ErrRefused], [ErrClosed], or the error of ctx.
func (l *Locker) Ping(ctx context.Context) error {
	_, err := l.state(ctx, "ping", "ping")
	return err
}

// state reads a lock from the backend. After an error it returns the zero State.
func (l *Locker) state(ctx context.Context, operation, key string) (driver.State, error) {
	if !l.enter() {
		return driver.State{}, ErrClosed
	}
	defer l.workEnds()
	if ctx.Err() != nil {
		return driver.State{}, callerLeft(operation, ctx)
	}
	name := driver.Name{Namespace: l.opts.Namespace, Key: key}
	state, err := callDriver(ctx, min(firstAnswer, l.opts.TTL),
		func(ctx context.Context) (driver.State, error) { return l.driver.Inspect(ctx, name) })
	if err == nil {
		return state, nil
	}
	if ctx.Err() != nil {
		return driver.State{}, callerLeft(operation, ctx)
	}
	return driver.State{}, failedRead(operation, err)
}
