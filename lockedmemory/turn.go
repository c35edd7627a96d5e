package lockedmemory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/lastwrite"
)

// The operations that a Locker's Observer sees of this package.
const (
	OpLoad     = "lockedmemory.load" // not of a call without a session
	OpSave     = "lockedmemory.save"
	OpAppend   = "lockedmemory.append"
	OpSaveOnce = "lockedmemory.save_once"
	OpReplace  = "lockedmemory.replace"
	OpClear    = "lockedmemory.clear"
	OpFork     = "lockedmemory.fork"
	OpDelete   = "lockedmemory.delete"
	OpTurn     = "lockedmemory.turn"
	OpAnswer   = "lockedmemory.answer" // a turn
	OpStop     = "lockedmemory.stop"
	OpPut      = "lockedmemory.put"

	OpAnswerAll = "lockedmemory.answer_all" // a turn
)

// Errors alone name these operations.
const (
	opAnswered = "lockedmemory.answered"
	opLast     = "lockedmemory.last"
	opBackward = "lockedmemory.backward"
	opForward  = "lockedmemory.forward"
	opSessions = "lockedmemory.sessions"
	opPing     = "lockedmemory.ping"
	opPending  = "lockedmemory.pending"
	opInboxes  = "lockedmemory.inboxes"
)

// Turn runs fn, one turn of the conversation, under the session's lease, which is renewed until fn
// returns. Turn waits for the lease as long as ctx and Options.Wait allow, or refuses at once, see
// [BusyPolicy]. distlock.WithWait and distlock.WithTTL change one turn. A Turn inside a Turn of the same
// session joins it.
//
// Use fn's context for everything inside, and load the history there: an earlier Load may be outdated. A
// write or Turn of the session with the outer context waits for its own turn, until ctx or Options.Wait
// ends the wait. Then it fails with a *distlock.BusyError whose ThisProcess is true.
//
// Turn returns the error of fn, or an error of distlock.Locker.Do. After an error of Acquire, fn was not
// run. distlock.ErrLost means that the lease was lost while fn ran. After the turn, calls with fn's context
// fail with distlock.ErrNotHeld or distlock.ErrLost.
func (m *LockedMemory[M, D]) Turn(ctx context.Context, fn func(ctx context.Context) error,
	opts ...distlock.CallOption) error {
	return m.turn(ctx, OpTurn, fn, message{}, append(opts[:len(opts):len(opts)], fencing.ForTurn())...)
}

// message is the message of an Answer. The zero message is that of a Turn.
type message struct {
	hash string
	read func(ctx context.Context) error // takes the stored answer, or fails without one
}

func (m *LockedMemory[M, D]) turn(ctx context.Context, name string, fn func(ctx context.Context) error,
	of message, opts ...distlock.CallOption) error {
	return m.observed(ctx, name, func(ctx context.Context, op *distlock.Operation) error {
		do := m.locker.Do
		switch m.opts.Busy {
		case Refuse:
			do = m.locker.TryDo
		case Interrupt:
			do = m.interrupting(of)
		}
		_, joins := m.locker.FromContext(ctx, op.Key)
		asked := time.Now()
		var began time.Time // zero without the lock
		err := do(ctx, op.Key, func(ctx context.Context) error {
			began = time.Now()
			op.Wait = began.Sub(asked)
			lease, _ := m.locker.FromContext(ctx, op.Key)
			exchanges := exchangesOf(lease)
			before := exchanges.Load()
			defer func() {
				op.Exchanges = int(exchanges.Load() - before)
				if !joins { // a lost lease was held until its deadline
					op.Held = min(time.Since(began), lease.Deadline().Sub(began))
				}
			}()
			return fn(withLease(ctx, lease))
		}, m.callOptions(opts)...)
		if began.IsZero() {
			op.Wait = time.Since(asked)
			if m.opts.Busy == Refuse && distlock.OutcomeOf(err) == distlock.OutcomeTimeout {
				op.Outcome = distlock.OutcomeBusy
			}
		}
		return err
	})
}

// callOptions are those of a Do. Its caller's come last, and win.
func (m *LockedMemory[M, D]) callOptions(opts []distlock.CallOption) []distlock.CallOption {
	return append([]distlock.CallOption{distlock.WithWait(m.opts.Wait)}, opts...)
}

type exchangesKey struct{}

// exchangesOf returns the count of the exchanges stored under a lease.
func exchangesOf(lease *distlock.Lease) *atomic.Int64 {
	return fencing.Attach(lease, exchangesKey{}, func() any { return new(atomic.Int64) }).(*atomic.Int64)
}

// step runs one write of the inner memory under the session's lock, as one step of its turn.
func (m *LockedMemory[M, D]) step(ctx context.Context, name string, write func(context.Context) error,
	opts ...distlock.CallOption) error {
	return m.observed(ctx, name, func(ctx context.Context, op *distlock.Operation) error {
		var lease *distlock.Lease
		var began bool  // the write, under the lease
		var wrote error // of the write
		_, joins := m.locker.FromContext(ctx, op.Key)
		// Do joins the lease of a turn.
		err := m.locker.Do(ctx, op.Key, func(ctx context.Context) error {
			lease, _ = m.locker.FromContext(ctx, op.Key)
			return lease.Guard(ctx, func(ctx context.Context) error {
				ctx = withLease(ctx, lease)
				if !joins || lastwrite.Announced(ctx) {
					ctx = lastwrite.With(ctx, lease, m.inner)
				}
				began, wrote = true, write(ctx)
				return wrote
			})
		}, m.callOptions(opts)...)
		if began {
			if op.Outcome = refusalOf(wrote); op.Outcome == distlock.OutcomeStale && errors.Is(err, distlock.ErrInterrupted) {
				op.Outcome = distlock.OutcomeInterrupted // refused for a Stop, not for another holder
			}
			err = writeError(name, m.store != nil, wrote, lease.Err(), err)
		}
		if err == nil && (name == OpSave || name == OpAppend || name == OpSaveOnce) {
			exchangesOf(lease).Add(1)
		}
		return err
	})
}

// writeError returns the error of a write that has begun: of the write, of its lease, or of the Do around it.
// With ErrOutcomeUnknown, the lease was lost, and the error of the write states no outcome. All errors of a
// session store do.
func writeError(name string, byStore bool, wrote, lease, done error) error {
	switch {
	case byStore && wrote == nil:
		return nil // stored, even if the lease was lost since
	case byStore || !interrupted(done):
		return done
	case errors.Is(wrote, distlock.ErrOutcomeUnknown), errors.Is(wrote, distlock.ErrUnavailable), errors.Is(wrote, distlock.ErrRefused):
		return done // of another memory: an error may be of a part of the write, so only these types count
	case interrupted(wrote) && !interrupted(lease):
		return done // the loss of another lease, which the inner memory has
	}
	return fmt.Errorf("%w: %s: %w", distlock.ErrOutcomeUnknown, name, done)
}

// refusalOf returns the outcome of a write that the store has refused, or "". Only this write counts as
// refused: OutcomeOf ignores a turn that returns its error.
func refusalOf(wrote error) distlock.Outcome {
	var refused interface{ Outcome() distlock.Outcome }
	if errors.As(wrote, &refused) {
		if o := refused.Outcome(); o == distlock.OutcomeStale || o == distlock.OutcomeConflict {
			return o
		}
	}
	return ""
}

func interrupted(err error) bool {
	return errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrClosed)
}

// observed finds the session of an operation, and reports it.
func (m *LockedMemory[M, D]) observed(ctx context.Context, name string,
	run func(ctx context.Context, op *distlock.Operation) error) error {
	key, err := m.key(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w: the KeyFunc does not know the session: %w", name, distlock.ErrInvalidKey, err)
	}
	if key == "" {
		return fmt.Errorf("%s: %w: the session is empty: put its ID into the context that the KeyFunc reads",
			name, distlock.ErrInvalidKey)
	}
	return m.reported(ctx, name, key, run)
}

// reported reports the operation to the Observer.
func (m *LockedMemory[M, D]) reported(ctx context.Context, name, key string,
	run func(ctx context.Context, op *distlock.Operation) error) error {
	observer := fencing.Options(m.locker).Observer
	op := &distlock.Operation{Name: name, Backend: fencing.Backend(m.locker), Key: key}
	ctx = observer.Start(ctx, op)
	defer func() {
		op.Outcome = cmp.Or(op.Outcome, distlock.OutcomeFailed) // the call did not return
		observer.End(ctx, op)
	}()
	if op.Err = run(ctx, op); errors.Is(op.Err, ErrStopped) {
		op.Outcome = distlock.OutcomeInterrupted
	}
	op.Outcome = cmp.Or(op.Outcome, distlock.OutcomeOf(op.Err))
	return op.Err
}

// read returns the context of a call that takes no lock.
func (m *LockedMemory[M, D]) read(ctx context.Context) (context.Context, error) {
	key, _ := m.key(ctx) // the inner memory decides whether a read needs a session
	lease, leased := m.locker.FromContext(ctx, key)
	if leased && lease.Err() != nil {
		return ctx, lease.Err()
	}
	return withLease(ctx, lease), nil
}

type leaseKey struct{}

// withLease returns the context of a call of the inner memory. A nil lease hides that of another session's
// turn around the call.
func withLease(ctx context.Context, lease *distlock.Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// Lease returns the lease of a call of an inner memory, for stores that check fencing tokens. A Load
// outside a Turn has none.
func Lease(ctx context.Context) (*distlock.Lease, bool) {
	lease, _ := ctx.Value(leaseKey{}).(*distlock.Lease)
	return lease, lease != nil
}
