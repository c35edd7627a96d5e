package lockedmemory

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// unlockedTurn takes the place of a lease in the context of a turn, or of one write, without the lock.
type unlockedTurn struct {
	writing chan struct{} // holds a token while an inner write runs
	over    atomic.Bool
}

type unlockedKey session

var errTurnOver = fmt.Errorf("%w: the turn, which ran without the lock, is over", distlock.ErrNotHeld)

func (m *LockedMemory[M, D]) unlockedTurn(ctx context.Context, key string) *unlockedTurn {
	if !m.opts.FailOpen { // such a turn is of another memory of the session
		return nil
	}
	turn, _ := ctx.Value(unlockedKey{m.locker, key}).(*unlockedTurn)
	return turn
}

// failsOpen reports whether op, which failed with err before it began, is to run without the lock. Under
// a lease it is not: the lease may be lost, and another holder may have the lock. Nor if the backend has
// just named a holder: then it is not away.
func (m *LockedMemory[M, D]) failsOpen(ctx context.Context, op *distlock.Operation, err error) bool {
	if !m.opts.FailOpen || !errors.Is(err, distlock.ErrUnavailable) || ctx.Err() != nil {
		return false
	}
	_, leased := m.locker.FromContext(ctx, op.Key)
	var holder *distlock.BusyError
	if leased || errors.As(err, &holder) {
		return false
	}
	op.Unlocked = true
	opts := fencing.Options(m.locker)
	opts.Logger.Warn("lockedmemory: the lock service is unavailable, running without the lock",
		"operation", op.Name, fencing.KeyAttr(opts.LogKeys, op.Key), "unlocked", true, "error", err)
	return true
}

func (m *LockedMemory[M, D]) runUnlocked(ctx context.Context, op *distlock.Operation,
	fn func(context.Context) error) error {
	turn := &unlockedTurn{writing: make(chan struct{}, 1)}
	defer turn.over.Store(true)
	return fn(context.WithValue(ctx, unlockedKey{m.locker, op.Key}, turn))
}

func (t *unlockedTurn) join(ctx context.Context, fn func(context.Context) error) error {
	if t.over.Load() {
		return errTurnOver
	}
	return fn(ctx)
}

// step runs one write at a time, as under a lease. A write inside a write runs at once.
func (t *unlockedTurn) step(ctx context.Context, write func(context.Context) error) error {
	if within, _ := ctx.Value(writingKey{t}).(bool); within && ctx.Err() == nil {
		return t.join(ctx, write)
	}
	select {
	case t.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("lockedmemory: waiting for another write of the turn: %w", ctx.Err())
	}
	defer func() { <-t.writing }()
	return t.join(context.WithValue(ctx, writingKey{t}, true), write)
}

type writingKey struct{ turn *unlockedTurn }
