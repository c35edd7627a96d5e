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
// empty id, Stop ends the turn that runs, with its message, the turns and writes that wait, and the messages that
// are pending, see [LockedMemory.Put]. stored says that the message was answered first. The context of fn ends with
// the cause distlock.ErrInterrupted. Until the turn or the grace is over, Stop waits, and fn may store its answer.
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
		if err != nil {
			return fmt.Errorf("%s: %w", OpStop, err)
		}
		stored, err = m.stop(ctx, op, id, grace)
		if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, distlock.ErrOutcomeUnknown) {
			err = fmt.Errorf("%w: %s: %w: repeat the call", distlock.ErrOutcomeUnknown, OpStop, ended)
		}
		return err
	})
	return stored && err == nil, err
}

// stop is Stop. ⚑ If the mark was above that of the ask, its lease may still write: a repetition or a waiter
// from before the Stop has begun since, or the lock has lost a grant in a failover.
func (m *LockedMemory[M, D]) stop(ctx context.Context, op *distlock.Operation, id string, grace time.Duration) (stored bool, failure error) {
	var req driver.AskRequest
	if id != "" {
		var err error
		if req.Work, err = m.store.HashOf(id); err == nil && grace == 0 { // ⚑ or a repetition begins after the ask
			stored, _, _, err = m.store.CloseMessage(ctx, req.Work, "", 0, 0, 0)
		}
		if stored || err != nil {
			return stored, err
		}
	}
	for i := range stopTries {
		reply, err := m.ask(ctx, op.Key, req)
		asks := !errors.Is(err, errors.ErrUnsupported)
		if err != nil && (asks || id == "") {
			return false, err
		}
		if i == 0 && id == "" && m.store != nil { // ⚑ or a Sweep answers what this stops
			pending, err := m.store.Pending(withLease(ctx, nil))
			if err != nil {
				return false, err
			}
			defer func() {
				for _, q := range pending {
					if hash, _ := m.store.HashOf(q.ID); failure == nil {
						_, _, _, failure = m.store.CloseMessage(ctx, hash, "", 0, 0, 0)
					}
				}
			}()
		}
		// ⚑ The mark refuses what the work writes without its ID. Of a free lock, too: the work may not know
		// that its lease has ended.
		closes, mark, stop, block := req.Work, reply.Fence, int64(0), int64(0)
		switch other := reply.State.Held && !reply.Asked; {
		case other && id == "":
			req.Fence, closes = reply.Fence, reply.State.Metadata[driver.WorkKey]
			if grace == 0 && closes != "" && m.store != nil { // ⚑ or the work finds its message open
				// ⚑ Its answer does not count: another work may begin before the ask.
				if _, _, _, err := m.store.CloseMessage(ctx, closes, "", 0, 0, 0); err != nil {
					return stored, err
				}
			}
			continue
		case other: // ⚑ an Interrupt may have left it a grace
			if mark = reply.Own; req.Floor > 0 { // ⚑ a mark in its block is of its local handoff
				block = driver.FenceBlock
			}
			if req.Floor > mark+block+1 {
				mark = req.Floor
			}
		case id == "": // ⚑ a redelivery of its message would be answered
			closes, stop = reply.State.Metadata[driver.WorkKey], mark
		}
		waited := stop > 0 && grace > 0 && reply.Asked && m.store != nil
		first := int64(0)
		if waited { // ⚑ waiters from before the Stop begin no work in the grace, and later turns are left alone
			if _, _, first, err = m.store.CloseMessage(ctx, "", "", 0, reply.Own, stop); err != nil {
				return false, err
			}
		}
		if over := m.awaitEnd(ctx, op, reply, grace); m.store == nil && over {
			return false, nil
		} else if m.store == nil {
			break
		}
		isStored, _, before, err := m.store.CloseMessage(ctx, closes, "", 0, mark, stop)
		if waited {
			before = first
		}
		stored = stored || isStored
		if err != nil || before <= mark+block || id != "" && (stored || !asks) {
			return stored, err
		}
		grace, req.Floor = 0, before+1
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
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		// ⚑ Not the token that is shown: another ask raises it.
		if seen, err := m.ask(ctx, op.Key, driver.AskRequest{}); err == nil && (!seen.State.Held || seen.Own != asked.Own) {
			return true
		}
		if !pause(ctx, wait) {
			return false
		}
	}
}
