package lockedmemory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// Stop ends the [LockedMemory.Answer] to a message for good, in any process: it returns [ErrStopped]. With an
// empty id, Stop ends the turn that runs, with its message, and the turns and writes that wait. stored says
// that the message was answered first. The context of fn ends with the cause distlock.ErrInterrupted. Until
// the turn or the grace is over, Stop waits, and fn may store its answer.
//
// After an error, repeat the call. distlock.ErrOutcomeUnknown also says that the lock does not answer, or
// that without a session store, a turn goes on after the grace. Inside the turn itself, Stop fails with a
// *distlock.BusyError whose Self is true.
func (m *LockedMemory[M, D]) Stop(ctx context.Context, id string, grace time.Duration) (stored bool, err error) {
	if err := m.needsStore(OpStop); err != nil && id != "" {
		return false, err
	}
	if grace < 0 {
		return false, fmt.Errorf("%s: %w: the grace is %s, but must not be negative", OpStop, distlock.ErrInvalidOption, grace)
	}
	err = m.observed(ctx, OpStop, func(ctx context.Context, op *distlock.Operation) error {
		if lease, inside := m.locker.FromContext(ctx, op.Key); inside && lease.Err() == nil {
			return fmt.Errorf("%s: a turn does not stop itself: %w", OpStop, &distlock.BusyError{Self: true})
		}
		err := ctx.Err()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", OpStop, err)
		case id != "":
			stored, err = m.stopMessage(ctx, op, id, grace)
		default:
			stored, err = m.stopAll(ctx, op, grace)
		}
		if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, distlock.ErrOutcomeUnknown) {
			err = fmt.Errorf("%w: %s: %w: repeat the call", distlock.ErrOutcomeUnknown, OpStop, ended)
		}
		return err
	})
	return stored && err == nil, err
}

// stopMessage is Stop of a message.
func (m *LockedMemory[M, D]) stopMessage(ctx context.Context, op *distlock.Operation, id string, grace time.Duration) (stored bool, err error) {
	id, err = m.store.HashOf(id)
	if err != nil {
		return false, err
	}
	if grace == 0 { // ⚑ or a repetition begins after the ask
		if stored, _, _, err = m.store.CloseMessage(ctx, id, "", 0, 0, 0); stored || err != nil {
			return stored, err
		}
	}
	var reply driver.AskReply
	ask := func(work string) (err error) {
		reply, err = m.ask(ctx, op.Key, driver.AskRequest{Work: work})
		if reply.State.Held && !reply.Asked { // ⚑ other work, to which an Interrupt may have left a grace
			reply.Fence = reply.Own
		}
		return err
	}
	err = ask(id)
	asks := !errors.Is(err, errors.ErrUnsupported)
	if err != nil && asks {
		return false, err
	}
	m.awaitEnd(ctx, op, reply, grace)
	// ⚑ The mark refuses what the work writes without its ID. Of a free lock, too: the work may not know
	// that its lease has ended.
	stored, _, mark, err := m.store.CloseMessage(ctx, id, "", 0, reply.Fence, 0)
	if stored || err != nil || !asks {
		return stored, err
	}
	if mark > reply.Fence { // ⚑ the lock has lost the grant of the work, in a failover
		if err = ask(""); err != nil {
			return false, err
		}
		// ⚑ Not at the mark, which a later lease may have. In the block of a holder, the mark is of its local
		// handoff.
		if reply.Fence < mark && (!reply.State.Held || mark > reply.Fence+driver.FenceBlock) {
			reply.Fence = mark + 1
		}
		_, _, _, err = m.store.CloseMessage(ctx, "", "", 0, reply.Fence, 0)
	}
	if err == nil && grace > 0 { // ⚑ a repetition may have begun in the grace
		if err = ask(id); err == nil && reply.Asked {
			_, _, _, err = m.store.CloseMessage(ctx, "", "", 0, reply.Fence, 0)
		}
	}
	return false, err
}

// stopAll is Stop without an ID. ⚑ If the mark was above the ask, a waiter from before the Stop may have been
// granted since: the lock has lost a grant in a failover.
func (m *LockedMemory[M, D]) stopAll(ctx context.Context, op *distlock.Operation, grace time.Duration) (stored bool, err error) {
	var req driver.AskRequest
	for range stopTries {
		reply, err := m.ask(ctx, op.Key, req)
		if err != nil {
			return false, err
		}
		if req.Fence = reply.Fence; reply.State.Held && !reply.Asked {
			continue
		}
		over := m.awaitEnd(ctx, op, reply, grace)
		if m.store == nil && over {
			return false, nil
		} else if m.store == nil {
			break
		}
		grace = 0
		// ⚑ The work is that of the grant: a redelivery of its message would be answered.
		isStored, _, mark, err := m.store.CloseMessage(ctx, reply.State.Metadata[driver.WorkKey], "", 0, reply.Fence, reply.Fence)
		if stored = stored || isStored; err != nil || mark <= reply.Fence {
			return stored, err
		}
		req.Floor = mark + 1
	}
	return false, fmt.Errorf("%w: %s: the turn may not have ended yet: repeat the call", distlock.ErrOutcomeUnknown, OpStop)
}

// stopTries bounds how often a Stop asks, while other turns begin.
const stopTries = 16

// ask is fencing.Ask. A Stop without the lock has an unknown outcome: it may have closed the message.
func (m *LockedMemory[M, D]) ask(ctx context.Context, key string, req driver.AskRequest) (driver.AskReply, error) {
	reply, err := fencing.Ask(ctx, m.locker, key, req)
	if errors.Is(err, distlock.ErrUnavailable) {
		err = fmt.Errorf("%w: %s: %v: repeat the call", distlock.ErrOutcomeUnknown, OpStop, err)
	}
	return reply, err
}

// awaitEnd waits until a grant that was asked has ended, at most the grace, and reports whether it has.
func (m *LockedMemory[M, D]) awaitEnd(ctx context.Context, op *distlock.Operation, asked driver.AskReply, grace time.Duration) bool {
	if asked.Asked { // a trace links the Stop with the turn that it ends
		op.Blocker = asked.State.Metadata
	}
	if !asked.Asked || grace == 0 {
		return !asked.State.Held
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for {
		if info, err := m.locker.Inspect(ctx, op.Key); err == nil && info.Fence != asked.Fence {
			return true
		}
		if !pause(ctx, 50*time.Millisecond) {
			return false
		}
	}
}
