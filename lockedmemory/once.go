package lockedmemory

import (
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// Once is a [LockedMemory.Turn] for a message, for a caller that stores the exchange itself: fn stores by
// [LockedMemory.SaveOnce] with the ID. If the ID is known, Once does not run fn, and returns the messages of the
// stored exchange. It also returns them if fn has stored them, and has lost its lease since. Most callers want
// [LockedMemory.Answer].
//
// The errors are those of fn and Turn, [ErrInvalidID], [ErrAnswerGone] and [ErrStopped]. With Refuse and
// Interrupt, Once does what Answer does.
func (m *LockedMemory[M, D]) Once(ctx context.Context, id string, fn func(ctx context.Context) error,
	opts ...distlock.CallOption) (stored []M, err error) {
	if err := m.needsStore(OpTurn); err != nil {
		return nil, err
	}
	hash, err := m.store.HashOf(id)
	if err != nil {
		return nil, err
	}
	look := func(ctx context.Context) (known bool, err error) {
		exchange, known, err := m.store.Answered(ctx, id)
		stored = exchange.Messages
		return known, err
	}
	closes := false
	of := message{hash: hash, read: func(ctx context.Context) error {
		known, err := look(withLease(ctx, nil))
		if !known && err == nil {
			err = fmt.Errorf("%s: %w: the session was deleted since the message was decided: repeat the call", OpTurn, distlock.ErrInterrupted)
		}
		return err
	}}
	err = m.turn(ctx, OpTurn, func(ctx context.Context) error {
		// ⚑ Not Begin: all stores under the lease would read the ID.
		known, err := look(ctx)
		if closes = errors.Is(err, distlock.ErrInterrupted); known || err != nil {
			return err
		}
		return fn(ctx)
	}, of, append(opts[:len(opts):len(opts)], fencing.ForWork(hash))...)
	isCut := errors.Is(err, distlock.ErrInterrupted) || errors.Is(err, distlock.ErrLost)
	switch {
	case stored != nil: // even if the lease was lost since
		return stored, nil
	case !isCut || errors.Is(err, distlock.ErrOutcomeUnknown):
		return nil, err
	}
	ctx = withLease(ctx, nil)
	if closes { // ⚑ a Stop of the session did not see the message, which waited
		_, _, _, _ = m.store.CloseMessage(ctx, hash, "", 0, 0, 0)
	}
	if known, decided := look(ctx); known {
		err = decided
	}
	return stored, err
}
