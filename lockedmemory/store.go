package lockedmemory

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// SessionStore is an inner memory that keeps exchanges, such as a sessionstore.Store. The methods of
// [LockedMemory] with these names call it, and have its contracts. Without it, they fail with
// errors.ErrUnsupported. The session of Fork's ctx is the source, and the lease that of the other session.
//
// A store may have a method Check(messages ...M) error, which returns nil if the messages can be stored.
// [LockedMemory.Answer] then checks the question before its function is run.
type SessionStore[M any] interface {
	Append(ctx context.Context, messages ...M) error
	SaveOnce(ctx context.Context, id string, messages ...M) error
	Replace(ctx context.Context, from, to Place, exchanges ...Exchange[M]) error
	Fork(ctx context.Context, to string, upTo Place) error
	Delete(ctx context.Context) error
	Answered(ctx context.Context, id string) (exchange Exchange[M], known bool, err error)
	Last(ctx context.Context, n int) ([]Exchange[M], error)
	Backward(ctx context.Context, before Place) iter.Seq2[Exchange[M], error]
	Forward(ctx context.Context, after Place) iter.Seq2[Exchange[M], error]
	Sessions(ctx context.Context) iter.Seq2[string, error]
	Ping(ctx context.Context) (advice []string, err error)
}

// sessionStore returns the inner memory as a [SessionStore].
func (m *LockedMemory[M, D]) sessionStore(operation string) (SessionStore[M], error) {
	if store, ok := m.inner.(SessionStore[M]); ok {
		return store, nil
	}
	return nil, fmt.Errorf("%s: %w: the inner memory, a %T, is no session store; nothing was read or written: "+
		"put lockedmemory in front of a sessionstore.Store", operation, errors.ErrUnsupported, m.inner)
}

// Append is [LockedMemory.Save] for one exchange of any number of messages: a question, tool calls, their
// results, and the answer.
func (m *LockedMemory[M, D]) Append(ctx context.Context, messages ...M) error {
	store, err := m.sessionStore(OpAppend)
	if err != nil {
		return err
	}
	return m.step(ctx, OpAppend, func(ctx context.Context) error { return store.Append(ctx, messages...) })
}

// SaveOnce is [LockedMemory.Append] under an ID of 1 to 512 bytes: the messages are stored once,
// however often the call is repeated, in any process. Other messages under the ID give an error of the
// store, such as sessionstore.ErrTurnConflict.
//
// The ID is that of one exchange: of the message that is answered, or of a step, such as "message-7/2". Two
// sessions may have the same ID.
func (m *LockedMemory[M, D]) SaveOnce(ctx context.Context, id string, messages ...M) error {
	store, err := m.sessionStore(OpSaveOnce)
	if err != nil {
		return err
	}
	return m.step(ctx, OpSaveOnce, func(ctx context.Context) error { return store.SaveOnce(ctx, id, messages...) },
		forID(id))
}

// Replace puts exchanges in the place of those at the places from to to, both included, under the
// session's lock. See sessionstore.Store.Replace. Read the exchanges in the same Turn. Otherwise another
// turn may come between.
func (m *LockedMemory[M, D]) Replace(ctx context.Context, from, to Place, exchanges ...Exchange[M]) error {
	store, err := m.sessionStore(OpReplace)
	if err != nil {
		return err
	}
	var opts []distlock.CallOption
	if len(exchanges) == 0 {
		opts = append(opts, fencing.Frees())
	}
	return m.step(ctx, OpReplace, func(ctx context.Context) error {
		return store.Replace(ctx, from, to, exchanges...)
	}, opts...)
}

// Fork copies the history of the session of ctx into another one, under the lock of that one: to is what
// the KeyFunc would return for it. See sessionstore.Store.Fork. It takes no lock on the session of ctx, so
// call it in a Turn of that session or outside. Two turns that fork into each other's sessions wait until
// Options.Wait ends.
func (m *LockedMemory[M, D]) Fork(ctx context.Context, to string, upTo Place) error {
	store, err := m.sessionStore(OpFork)
	if err != nil {
		return err
	}
	other := *m
	other.key = FixedKey(to)
	return other.step(ctx, OpFork, func(ctx context.Context) error { return store.Fork(ctx, to, upTo) })
}

// Delete removes the session for good: the history and the IDs, under the session's lock.
func (m *LockedMemory[M, D]) Delete(ctx context.Context) error {
	store, err := m.sessionStore(OpDelete)
	if err != nil {
		return err
	}
	return m.step(ctx, OpDelete, store.Delete, fencing.Frees())
}

// Answered returns the exchange that is stored under an ID. If known is false, there was none. With
// [ErrAnswerGone], known is true, and the exchange is no longer in the history.
func (m *LockedMemory[M, D]) Answered(ctx context.Context, id string) (
	exchange Exchange[M], known bool, err error) {
	ctx, store, err := m.readStore(ctx, "lockedmemory.answered")
	if err != nil {
		return exchange, false, err
	}
	return store.Answered(ctx, id)
}

// Last returns the last n exchanges in order: whole turns, and at most n exchanges, but the newest turn in
// any case.
func (m *LockedMemory[M, D]) Last(ctx context.Context, n int) ([]Exchange[M], error) {
	ctx, store, err := m.readStore(ctx, "lockedmemory.last")
	if err != nil {
		return nil, err
	}
	return store.Last(ctx, n)
}

// Backward yields the exchanges before a place, the newest first, a page at a time. The zero Place is the
// end of the history. Break at your budget of tokens. The Place of the last exchange is where to go on,
// also in another process. After an empty page, keep the Place. See sessionstore.Store.Backward.
func (m *LockedMemory[M, D]) Backward(ctx context.Context, before Place) iter.Seq2[Exchange[M], error] {
	return m.iterate(ctx, "lockedmemory.backward", SessionStore[M].Backward, before)
}

// Forward is [LockedMemory.Backward] in the other direction: it yields the exchanges after a place, in
// order. The zero Place is the beginning of the history.
func (m *LockedMemory[M, D]) Forward(ctx context.Context, after Place) iter.Seq2[Exchange[M], error] {
	return m.iterate(ctx, "lockedmemory.forward", SessionStore[M].Forward, after)
}

// Sessions yields the names of the sessions that have an exchange stored, as the KeyFunc returned them, in
// no order. It needs no session in ctx. An error ends the sequence.
func (m *LockedMemory[M, D]) Sessions(ctx context.Context) iter.Seq2[string, error] {
	store, err := m.sessionStore("lockedmemory.sessions")
	if err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return store.Sessions(ctx)
}

// Ping returns nil if the service of the session store answers, and advice on its settings, for operators.
// The Ping of the Locker asks the lock service.
func (m *LockedMemory[M, D]) Ping(ctx context.Context) (advice []string, err error) {
	store, err := m.sessionStore("lockedmemory.ping")
	if err != nil {
		return nil, err
	}
	return store.Ping(ctx)
}

func (m *LockedMemory[M, D]) iterate(ctx context.Context, operation string,
	read func(SessionStore[M], context.Context, Place) iter.Seq2[Exchange[M], error], from Place,
) iter.Seq2[Exchange[M], error] {
	return func(yield func(Exchange[M], error) bool) {
		ctx, store, err := m.readStore(ctx, operation)
		if err != nil {
			yield(Exchange[M]{}, err)
			return
		}
		read(store, ctx, from)(yield)
	}
}

// readStore returns the context of a read of the session store.
func (m *LockedMemory[M, D]) readStore(ctx context.Context, operation string,
) (context.Context, SessionStore[M], error) {
	store, err := m.sessionStore(operation)
	if err == nil {
		ctx, err = m.read(ctx)
	}
	return ctx, store, err
}
