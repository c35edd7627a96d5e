package lockedmemory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// ErrInboxFull: the inbox of the session has 100 questions, or 1 MiB of them. Put the question again when some
// are answered.
var ErrInboxFull = errors.New("lockedmemory: inbox full")

// Question is a message that waits for an answer.
type Question[M any] struct {
	ID      string
	Message M
	// Age is the time since its Put, by the clock of the service. Only Pending fills it in.
	Age time.Duration
	// Superseded, for AnswerAll: the question is closed when the others are answered. The function does not
	// see it.
	Superseded bool
	// Err says why Pending could not read the Message. AnswerAll leaves the question open.
	Err error
}

// Put accepts a question into the inbox of the session, in one request without the lock. It is pending for 24
// hours, or until it is answered, stopped or superseded. Package inbox answers pending questions. The first
// question under an ID stands. Clear leaves the inbox as it is; Delete removes it.
//
// Nil means that the question is pending or answered. After [ErrStopped], [ErrSuperseded] or [ErrInboxFull],
// it is not pending. After distlock.ErrOutcomeUnknown, repeat the call. Put needs the policy [Queue], and a
// Retention.RememberIDs of 24 hours or more; otherwise it fails with distlock.ErrInvalidOption.
func (m *LockedMemory[M, D]) Put(ctx context.Context, id string, question M) error {
	if err := m.needsStore(OpPut); err != nil {
		return err
	}
	if m.opts.Busy != Queue { // ⚑ a turn that is refused or interrupted would leave its question to others
		return fmt.Errorf("%s: %w: an inbox needs the BusyPolicy Queue; nothing was written", OpPut, distlock.ErrInvalidOption)
	}
	return m.observed(ctx, OpPut, func(ctx context.Context, _ *distlock.Operation) error {
		return m.store.Put(withLease(ctx, nil), id, question)
	})
}

// Pending returns the questions that are pending, by arrival.
func (m *LockedMemory[M, D]) Pending(ctx context.Context) ([]Question[M], error) {
	ctx, err := m.readsStore(ctx, opPending)
	if err != nil {
		return nil, err
	}
	questions, err := m.store.Pending(ctx)
	if lease, ok := Lease(ctx); ok {
		for _, q := range questions {
			listedUnder(lease).Store(q.ID, nil)
		}
	}
	return questions, err
}

// Inboxes yields the names of the sessions that may have a pending question. It needs no session in ctx.
func (m *LockedMemory[M, D]) Inboxes(ctx context.Context) iter.Seq2[string, error] {
	if err := m.needsStore(opInboxes); err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return m.store.Inboxes(ctx)
}

type listedKey struct{}

// listedUnder returns the IDs that Pending has returned under a lease. AnswerAll need not read them again.
func listedUnder(lease *distlock.Lease) *sync.Map {
	return fencing.Attach(lease, listedKey{}, func() any { return new(sync.Map) }).(*sync.Map)
}
