package distlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// maxPage is the most locks on one page of List.
const maxPage = 1000

// Info is the backend's view of a lock. After a local handoff, Fence is lower than the present
// lease's, and Age up to 10 ms higher.
type Info struct {
	Key     string
	Held    bool
	Holder  string        // the holder's Options.Holder
	Fence   int64         // the token of the grant
	Age     time.Duration // since the grant, by the backend's clock
	TTL     time.Duration // until the lock expires without a renewal; negative: it does not expire
	Waiters int           // processes in the backend's queue; 0 if the backend keeps none
}

func infoOf(key string, s driver.State) Info {
	return Info{Key: key, Held: s.Held, Holder: s.Holder, Fence: s.Fence, Age: s.Age, TTL: s.TTL, Waiters: s.Waiters}
}

// Inspect returns the backend's view of the lock, perhaps outdated. Errors: [ErrInvalidKey],
// [ErrUnavailable], [ErrRefused], [ErrClosed], that of ctx.
func (l *Locker) Inspect(ctx context.Context, key string) (Info, error) {
	if err := validKey(key); err != nil {
		return Info{}, err
	}
	s, err := l.state(ctx, "inspect", key)
	if err != nil {
		return Info{}, err
	}
	return infoOf(key, s), nil
}

// Ping asks the backend, for readiness probes. Errors: as [Locker.Inspect].
func (l *Locker) Ping(ctx context.Context) error {
	_, err := l.state(ctx, "ping", "ping")
	return err
}

// List returns a page of at most limit (1 to 1,000) held or awaited locks of the namespace. Pass "" for the
// first page. next is "" if no page follows. Errors: as [Locker.Inspect], or [errors.ErrUnsupported].
func (l *Locker) List(ctx context.Context, after string, limit int) (page []Info, next string, err error) {
	if limit < 1 || limit > maxPage {
		return nil, "", invalidOption("the limit of a page is %d, but must be from 1 to %d", limit, maxPage)
	}
	lister, ok := driver.As[driver.Lister](l.driver)
	if !ok {
		return nil, "", errNoList
	}
	req := driver.ListRequest{Namespace: l.opts.Namespace, After: after, Limit: limit}
	reply, err := read(ctx, l, "list", firstAnswer,
		func(ctx context.Context) (driver.ListReply, error) { return lister.List(ctx, req) })
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, "", errNoList
	}
	for _, listed := range reply.Names {
		page = append(page, infoOf(listed.Name.Key, listed.State))
	}
	return page, reply.Next, err
}

var errNoList = fmt.Errorf("distlock: list: %w: the backend cannot list its locks; inspect each by its key",
	errors.ErrUnsupported)

// state reads a lock from the backend.
func (l *Locker) state(ctx context.Context, operation, key string) (driver.State, error) {
	return read(ctx, l, operation, min(firstAnswer, l.opts.TTL),
		func(ctx context.Context) (driver.State, error) { return l.driver.Inspect(ctx, l.name(key)) })
}

// read makes a call of the driver that changes nothing. After an error it returns the zero T.
func read[T any](ctx context.Context, l *Locker, operation string, limit time.Duration,
	f func(context.Context) (T, error)) (T, error) {
	var none T
	if !l.enter() {
		return none, ErrClosed
	}
	defer l.workEnds()
	if ctx.Err() != nil {
		return none, callerLeft(operation, ctx)
	}
	reply, err := callDriver(ctx, limit, f)
	switch {
	case err != nil && ctx.Err() != nil:
		return none, callerLeft(operation, ctx)
	case err != nil:
		return none, failedRead(operation, err)
	}
	return reply, nil
}
