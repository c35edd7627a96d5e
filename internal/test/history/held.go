package history

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/belugalock/belugalock/distlock"
)

// Held is a lease whose end is recorded.
type Held struct {
	*distlock.Lease
	r     *Recorder
	key   string
	fence int64
	alive atomic.Int64
}

// Acquire acquires a lease with Locker.Acquire or Locker.TryAcquire, and records the lease and its
// loss. Release the lease with [Held.Release].
func (r *Recorder) Acquire(ctx context.Context, acquire func(context.Context, string, ...distlock.CallOption) (*distlock.Lease, error),
	key string, opts ...distlock.CallOption) (*Held, error) {
	p := r.Begin(Op{Kind: Acquire, Key: key})
	lease, err := acquire(ctx, key, opts...)
	if err != nil {
		if errors.Is(err, distlock.ErrNotAcquired) {
			p.End(func(o *Op) { o.Outcome = Nothing })
		}
		return nil, err
	}
	return r.granted(p, key, lease), nil
}

// granted records a grant, under the token that it had: a store may raise it later.
func (r *Recorder) granted(p *Pending, key string, lease *distlock.Lease) *Held {
	h := &Held{Lease: lease, r: r, key: key, fence: lease.Fence()}
	p.End(func(o *Op) { o.Outcome, o.Fence = OK, h.fence })
	h.Check()
	context.AfterFunc(lease.Context(), func() {
		if errors.Is(context.Cause(lease.Context()), distlock.ErrLost) {
			h.note(Op{Kind: Lost})
		}
	})
	return h
}

// Check records that the lease is held, if it is. No notice of its loss came before. Work calls Check now and
// then: between its last call and the notice, nothing can be judged. It asks the lease itself, which compares
// the clock. A context may end later than its lease.
func (h *Held) Check() {
	now := Now()
	if h.Lease.Err() == nil {
		h.alive.Store(now)
	}
}

func (h *Held) note(op Op) {
	op.Key, op.Fence, op.Alive = h.key, h.fence, h.alive.Load()
	h.r.Note(op)
}

// Release gives the lease back, and records that.
func (h *Held) Release(ctx context.Context) error {
	p := h.over()
	err := h.Lease.Release(ctx)
	p.ended(err)
	return err
}

// over records that the holder has stopped to work.
func (h *Held) over() *Pending {
	return h.r.Begin(Op{Kind: Release, Key: h.key, Fence: h.fence, Alive: h.alive.Load()})
}

// ended is how a release was answered.
func (p *Pending) ended(err error) {
	switch {
	case err == nil:
		p.End(func(o *Op) { o.Outcome = OK })
	case errors.Is(err, distlock.ErrLost) && !errors.Is(err, distlock.ErrOutcomeUnknown):
		p.End(func(o *Op) { o.Outcome = Gone })
	}
}

// Do runs fn under a lease, as Locker.Do and LockedMemory.Turn do: take calls one of them. Neither returns
// how the lock was released. So the lease ends at some time after fn has returned, or is lost before take
// returns.
func (r *Recorder) Do(ctx context.Context, key string, lease func(context.Context) (*distlock.Lease, bool),
	take func(context.Context, func(context.Context) error) error, fn func(context.Context, *Held) error) error {
	p := r.Begin(Op{Kind: Acquire, Key: key})
	var released *Pending
	err := take(ctx, func(ctx context.Context) error {
		l, ok := lease(ctx)
		if !ok {
			return errors.New("there is no lease in the context")
		}
		h := r.granted(p, key, l)
		defer func() { released = h.over() }()
		return fn(ctx, h)
	})
	if released != nil && errors.Is(err, distlock.ErrLost) && !errors.Is(err, distlock.ErrOutcomeUnknown) {
		released.ended(err)
	}
	return err
}
