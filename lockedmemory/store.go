package lockedmemory

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// sessionStore is an inner memory that keeps exchanges and refuses writes without a lease: a
// sessionstore.Store. Nil from a write means that the write is stored, and an error matches
// distlock.ErrOutcomeUnknown if anything may have been written. An error of a write may have a method
// Outcome, which returns distlock.OutcomeStale or distlock.OutcomeConflict. The session of Fork's ctx is
// the source, and the lease that of the other session.
type sessionStore[M any] interface {
	// AcceptsLocker returns nil, or an error with the reason and the remedy.
	AcceptsLocker(locker *distlock.Locker) error
	// Check returns nil if the questions can be stored, and leave room for their answer.
	Check(messages ...M) error
	Append(ctx context.Context, messages ...M) error
	SaveOnce(ctx context.Context, id string, messages ...M) error
	Replace(ctx context.Context, from, to Place, exchanges ...Exchange[M]) error
	Fork(ctx context.Context, to string, upTo Place) error
	Delete(ctx context.Context) error
	Answered(ctx context.Context, id string) (exchange Exchange[M], known bool, err error)
	// Begin is Answered for the Answer that has taken the lease.
	Begin(ctx context.Context, id string) (exchange Exchange[M], known bool, err error)
	// HashOf returns the hash of a valid ID. The lock shows it as the work of an Answer.
	HashOf(id string) (string, error)
	// CloseMessage is Close of storedriver.Driver. stored says that the outcome is that of an answered message,
	// and decided that it is that of an answered or closed one. before is the mark before the call.
	CloseMessage(ctx context.Context, id, by string, below, mark, stop int64) (stored, decided bool, before int64, err error)
	Last(ctx context.Context, n int) ([]Exchange[M], error)
	Backward(ctx context.Context, before Place) iter.Seq2[Exchange[M], error]
	Forward(ctx context.Context, after Place) iter.Seq2[Exchange[M], error]
	Sessions(ctx context.Context) iter.Seq2[string, error]
	Ping(ctx context.Context) (advice []string, err error)
	// AppendAll is SaveOnce under several IDs. If one of them was decided, the error is a conflict, or that of the ID.
	AppendAll(ctx context.Context, ids, superseded []string, messages ...M) error
	Put(ctx context.Context, id string, question M) error
	Pending(ctx context.Context) ([]Question[M], error)
	Inboxes(ctx context.Context) iter.Seq2[string, error]
}

// needsStore returns an error if the inner memory is no session store.
func (m *LockedMemory[M, D]) needsStore(operation string) error {
	if m.store != nil {
		return nil
	}
	return fmt.Errorf("%s: %w: the inner memory, a %T, is no session store; nothing was read or written: "+
		"put lockedmemory in front of a sessionstore.Store", operation, errors.ErrUnsupported, m.inner)
}

// storeStep is a step that needs a session store.
func (m *LockedMemory[M, D]) storeStep(ctx context.Context, name string, write func(context.Context) error,
	opts ...distlock.CallOption) error {
	if err := m.needsStore(name); err != nil {
		return err
	}
	return m.step(ctx, name, write, opts...)
}

// Append is [LockedMemory.Save] for one exchange of any number of messages.
func (m *LockedMemory[M, D]) Append(ctx context.Context, messages ...M) error {
	return m.storeStep(ctx, OpAppend, func(ctx context.Context) error { return m.store.Append(ctx, messages...) })
}

// SaveOnce is [LockedMemory.Append] under an ID of 1 to 512 bytes: the messages are stored once, however
// often the call is repeated, in any process. The ID is that of one exchange of the session: of the message
// that is answered, or of a step, such as "message-7/2".
func (m *LockedMemory[M, D]) SaveOnce(ctx context.Context, id string, messages ...M) error {
	return m.storeStep(ctx, OpSaveOnce, func(ctx context.Context) error {
		return m.store.SaveOnce(ctx, id, messages...)
	})
}

// Replace puts exchanges in the place of those at the places from to to, both included. Read the exchanges
// in the same Turn. Otherwise another turn may come between.
func (m *LockedMemory[M, D]) Replace(ctx context.Context, from, to Place, exchanges ...Exchange[M]) error {
	var opts []distlock.CallOption
	if len(exchanges) == 0 {
		opts = append(opts, fencing.Frees())
	}
	return m.storeStep(ctx, OpReplace, func(ctx context.Context) error {
		return m.store.Replace(ctx, from, to, exchanges...)
	}, opts...)
}

// Fork copies the history of the session of ctx into the session to, under the lock of that one alone. Call
// it in a Turn of the source or outside. Two turns that fork into each other's sessions wait until
// Options.Wait ends.
func (m *LockedMemory[M, D]) Fork(ctx context.Context, to string, upTo Place) error {
	other := *m
	other.key = FixedKey(to)
	return other.storeStep(ctx, OpFork, func(ctx context.Context) error { return m.store.Fork(ctx, to, upTo) })
}

// Delete removes the session for good: the history and the IDs.
func (m *LockedMemory[M, D]) Delete(ctx context.Context) error {
	return m.storeStep(ctx, OpDelete, func(ctx context.Context) error { return m.store.Delete(ctx) }, fencing.Frees())
}

// Answered returns the exchange that is stored under an ID. If known is false, there was none. With
// [ErrAnswerGone] or [ErrStopped], known is true.
func (m *LockedMemory[M, D]) Answered(ctx context.Context, id string) (exchange Exchange[M], known bool, err error) {
	if ctx, err = m.readsStore(ctx, opAnswered); err != nil {
		return exchange, false, err
	}
	return m.store.Answered(ctx, id)
}

// Last returns the last n exchanges in order.
func (m *LockedMemory[M, D]) Last(ctx context.Context, n int) ([]Exchange[M], error) {
	ctx, err := m.readsStore(ctx, opLast)
	if err != nil {
		return nil, err
	}
	return m.store.Last(ctx, n)
}

// Backward yields the exchanges before a place, the newest first. The zero Place is the end of the history.
func (m *LockedMemory[M, D]) Backward(ctx context.Context, before Place) iter.Seq2[Exchange[M], error] {
	return m.iterate(ctx, opBackward, sessionStore[M].Backward, before)
}

// Forward yields the exchanges after a place, in order. The zero Place is the beginning of the history.
func (m *LockedMemory[M, D]) Forward(ctx context.Context, after Place) iter.Seq2[Exchange[M], error] {
	return m.iterate(ctx, opForward, sessionStore[M].Forward, after)
}

// Sessions yields the names of the sessions that have an exchange. It needs no session in ctx.
func (m *LockedMemory[M, D]) Sessions(ctx context.Context) iter.Seq2[string, error] {
	if err := m.needsStore(opSessions); err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return m.store.Sessions(ctx)
}

// Ping returns nil if the service of the session store answers, and advice on its settings, for operators.
// The Ping of the Locker asks the lock service.
func (m *LockedMemory[M, D]) Ping(ctx context.Context) (advice []string, err error) {
	if err := m.needsStore(opPing); err != nil {
		return nil, err
	}
	return m.store.Ping(ctx)
}

func (m *LockedMemory[M, D]) iterate(ctx context.Context, operation string,
	read func(sessionStore[M], context.Context, Place) iter.Seq2[Exchange[M], error], from Place,
) iter.Seq2[Exchange[M], error] {
	return func(yield func(Exchange[M], error) bool) {
		ctx, err := m.readsStore(ctx, operation)
		if err != nil {
			yield(Exchange[M]{}, err)
			return
		}
		read(m.store, ctx, from)(yield)
	}
}

// readsStore returns the context of a read of the session store.
func (m *LockedMemory[M, D]) readsStore(ctx context.Context, operation string) (context.Context, error) {
	if err := m.needsStore(operation); err != nil {
		return ctx, err
	}
	return m.read(ctx)
}
