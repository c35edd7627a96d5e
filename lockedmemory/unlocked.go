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
	session session
	writing chan struct{} // holds a token while an inner write runs
	over    atomic.Bool
}

type unlockedKey session

var errTurnOver = fmt.Errorf("%w: the turn, which ran without the lock, is over", distlock.ErrNotHeld)

// unlockedTurn returns the turn without the lock that ctx belongs to, or nil. Another memory of the
// session may have begun the turn, so a memory without FailOpen has no part in it.
func (m *LockedMemory[M, D]) unlockedTurn(ctx context.Context, key string) *unlockedTurn {
	turn, _ := ctx.Value(unlockedKey{m.locker, key}).(*unlockedTurn)
	if _, leased := m.locker.FromContext(ctx, key); leased || !m.opts.FailOpen {
		return nil
	}
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
	opts.Logger.WarnContext(ctx, "lockedmemory: the lock service is unavailable, running without the lock",
		"operation", op.Name, fencing.KeyAttr(opts.LogKeys, op.Key), "unlocked", true, "error", err)
	return true
}

func runUnlocked(ctx context.Context, s session, fn func(context.Context) error) error {
	turn := &unlockedTurn{session: s, writing: make(chan struct{}, 1)}
	defer turn.over.Store(true)
	return fn(context.WithValue(ctx, unlockedKey(s), turn))
}

func (t *unlockedTurn) join(ctx context.Context, fn func(context.Context) error) error {
	if t.over.Load() {
		return errTurnOver
	}
	return fn(ctx)
}

// guard runs one write at a time, as under a lease. A write inside the write has a turn of its own, so
// it does not wait for the write around it.
func (t *unlockedTurn) guard(ctx context.Context, write func(context.Context) error) error {
	select {
	case t.writing <- struct{}{}:
		defer func() { <-t.writing }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // select would leave it to chance
		return fmt.Errorf("lockedmemory: waiting for another write of the turn: %w", ctx.Err())
	}
	return t.join(ctx, func(ctx context.Context) error { return runUnlocked(ctx, t.session, write) })
}
