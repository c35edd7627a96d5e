package belugamemory

import (
	"context"

	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

var _ memory.Memory = (*Memory)(nil)

// Memory is a memory of Beluga that works under its session's lock: Save and Clear run alone, whole turns do in [Memory.Turn]. The errors
// of the lock have the codes of package core, see the package's documentation. It is safe for concurrent use if the inner memory is.
type Memory struct {
	locked *lockedmemory.LockedMemory[schema.Message, schema.Document]
	locker *distlock.Locker

	service *service // of New; nil if the Locker is the caller's
}

// Wrap puts locker in front of inner, any memory of Beluga. The session is that of the context, see [SessionKey]; whoever
// makes an inner memory for each conversation says [WithSessionID].
//
// The locker is the caller's to close. A nil inner or locker, and options out of range, are refused with distlock.ErrInvalidOption.
func Wrap(inner memory.Memory, locker *distlock.Locker, opts ...Option) (*Memory, error) {
	s, err := settingsOf(opts, forMemories)
	if err != nil {
		return nil, coded("belugamemory.wrap", err)
	}
	return wrap(inner, locker, s)
}

func wrap(inner memory.Memory, locker *distlock.Locker, s settings) (*Memory, error) {
	locked, err := lockedmemory.New(inner, locker, s.key, &lockedmemory.Options{Wait: s.wait, Busy: s.busy, FailOpen: s.failOpen})
	if err != nil {
		return nil, coded("belugamemory.wrap", err)
	}
	return &Memory{locked: locked, locker: locker}, nil
}

// Middleware is [Wrap] for memory.ApplyMiddleware. What it cannot wrap, a nil memory, becomes one whose every operation fails with
// the reason.
//
// The first middleware is the outermost. With memory.WithTracing before this one, the span memory.save shows the wait for the lock as a
// part of it; after this one, it begins when the lock is held. Hooks that come after this one run under the lock. For whole turns with
// [Turn], let this one come first, or use Wrap and keep what it returns.
func Middleware(locker *distlock.Locker, opts ...Option) (memory.Middleware, error) {
	s, err := settingsOf(opts, forMemories)
	if err != nil {
		return nil, coded("belugamemory.middleware", err)
	}
	// What is wrong with any memory is said now; what is wrong with one of them, when it comes.
	if _, err := wrap(failing{}, locker, s); err != nil {
		return nil, err
	}
	return func(inner memory.Memory) memory.Memory {
		m, err := wrap(inner, locker, s)
		if err != nil {
			return failing{err}
		}
		return m
	}, nil
}

// failing is a memory that could not be had.
type failing struct{ err error }

func (f failing) Save(context.Context, schema.Message, schema.Message) error     { return f.err }
func (f failing) Load(context.Context, string) ([]schema.Message, error)         { return nil, f.err }
func (f failing) Search(context.Context, string, int) ([]schema.Document, error) { return nil, f.err }
func (f failing) Clear(context.Context) error                                    { return f.err }
func (f failing) Turn(context.Context, func(ctx context.Context) error) error    { return f.err }

// Save appends one exchange under the session's lock, as lockedmemory.LockedMemory does.
func (m *Memory) Save(ctx context.Context, input, output schema.Message) error {
	return coded("belugamemory.save", afterSave(ctx, m.locked.Save(ctx, input, output)))
}

// Load returns the history, without a lock: load it inside a [Memory.Turn] to have it stay as it is until the Save.
func (m *Memory) Load(ctx context.Context, query string) ([]schema.Message, error) {
	if err := m.service.end(nil); err != nil {
		return nil, coded("belugamemory.load", err)
	}
	messages, err := m.locked.Load(ctx, query)
	if err != nil {
		err = m.service.end(err)
	}
	return messages, coded("belugamemory.load", err)
}

// Search asks the inner memory, as Load does.
func (m *Memory) Search(ctx context.Context, query string, k int) ([]schema.Document, error) {
	if err := m.service.end(nil); err != nil {
		return nil, coded("belugamemory.search", err)
	}
	documents, err := m.locked.Search(ctx, query, k)
	if err != nil {
		err = m.service.end(err)
	}
	return documents, coded("belugamemory.search", err)
}

// Clear forgets the session's history, under its lock.
func (m *Memory) Clear(ctx context.Context) error {
	return coded("belugamemory.clear", m.locked.Clear(ctx))
}

// Turn runs fn, one turn of the conversation, alone: no other instance works on the session until fn has returned. Load, answer and Save
// inside fn, with the context that it is given. See lockedmemory.LockedMemory.Turn for all that it promises.
//
// The error of fn comes back as it is, unless the lease was lost.
func (m *Memory) Turn(ctx context.Context, fn func(ctx context.Context) error) error {
	return under("belugamemory.turn", func(fn step) error { return m.locked.Turn(ctx, fn) }, fn)
}

// Locker is the one that the memory's locks come from: for [LockRun] and [WrapSessions], whose runs the memory's Saves are then part of.
func (m *Memory) Locker() *distlock.Locker { return m.locker }

// Turn runs fn as one turn of mem's session, see [Memory.Turn]. It is for a mem that came from memory.New("locked", …), which is a
// [*Memory], or from a [Middleware] that was the first. Middleware of others in front of that has no Turn, and hides it: then
// Turn fails with distlock.ErrInvalidOption, and fn is not run.
func Turn(ctx context.Context, mem memory.Memory, fn func(ctx context.Context) error) error {
	turner, ok := mem.(interface {
		Turn(ctx context.Context, fn func(ctx context.Context) error) error
	})
	if !ok {
		return coded("belugamemory.turn", invalid("a %T has no turns: give what memory.New(\"locked\", …) or Wrap has returned, and have "+
			"the locking middleware be the first of those that are applied", mem))
	}
	return turner.Turn(ctx, fn)
}
