package lockedmemory

import (
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
)

// ErrAnswerGone: the message was answered before, and its answer is no longer in the history: it was
// trimmed, cleared or replaced since. Nothing was written, and the function of the Answer was not run.
var ErrAnswerGone = errors.New("lockedmemory: answered before, and the answer is gone")

// Answer is the loop of a chat service: a [LockedMemory.Turn] that asks fn for the answer to a
// question, stores both as one exchange, and returns the answer. The ID is that of the question,
// see [WithTurnID]. If the ID is known, Answer returns the stored answer and does not run fn. So
// after an error, repeat it with the same ID, in any process. The question is not compared. A
// stored answer needs the lock, too: to return it without a wait, ask [LockedMemory.Answered]
// first.
//
// fn loads as much of the history as it needs. It returns the messages of the answer: tool calls,
// their results, the text. fn must not change the session. A Save, Append or Answer with its
// context fails with [ErrTurnID]. So a crash leaves the whole answer or nothing. A Replace, Clear
// or Delete is not refused: it takes effect at once, also if fn fails after that.
//
// For several Saves, use Turn with other IDs. A Turn may store one exchange under the ID and then
// fail. Answer takes that exchange for a whole answer: it returns the answer, and does not run fn.
//
// Errors, beside those of fn, Turn and [LockedMemory.Save]:
//
//	ErrAnswerGone              answered before, and trimmed, cleared or replaced since
//	ErrTurnID                  the ID is invalid, or a Turn has stored several exchanges under it, or
//	                           the Answer is inside a Turn of the session with an ID
//	errors.ErrUnsupported      the inner memory is no [SessionStore]
//	distlock.ErrInvalidOption  fn has returned no message; nothing was written
//
// With an error, the answer is nil and was not stored, unless the error is distlock.ErrOutcomeUnknown.
// Without an error the answer is stored, and has at least one message.
func (m *LockedMemory[M, D]) Answer(ctx context.Context, id string, question M,
	fn func(ctx context.Context) (answer []M, err error), opts ...distlock.CallOption) (answer []M, err error) {
	if _, err := m.sessionStore(OpAnswer); err != nil {
		return nil, err
	}
	err = m.turn(WithTurnID(ctx, id), OpAnswer, func(ctx context.Context) (err error) {
		if answer, err = m.known(ctx, id); answer != nil || err != nil {
			return err
		}
		key, _ := m.key(ctx)
		messages, err := fn(m.within(ctx, key, &NamedTurn{ID: id, sealed: true}))
		switch {
		case err != nil:
			return err
		case len(messages) == 0:
			return fmt.Errorf("%s: %w: the function returned no message; nothing was written: return an answer or an error",
				OpAnswer, distlock.ErrInvalidOption)
		}
		if err = m.Append(ctx, append([]M{question}, messages...)...); err == nil {
			answer = messages
		}
		return err
	}, opts...)
	if answer != nil { // it is stored, even if the lease was lost since
		return answer, nil
	}
	return nil, err
}

// known returns the answer that is stored under an ID, or nil.
func (m *LockedMemory[M, D]) known(ctx context.Context, id string) (answer []M, err error) {
	exchanges, stored, err := m.Answered(ctx, id)
	switch {
	case err != nil || stored == 0:
		return nil, err
	case stored > 1:
		return nil, fmt.Errorf("%s: %w: a Turn has stored %d exchanges under it; nothing was written: "+
			"use one ID for Answer and another one for Turn", OpAnswer, ErrTurnID, stored)
	}
	var messages []M
	for _, e := range exchanges { // a Replace may have put several in the place of one
		messages = append(messages, e.Messages...)
	}
	if len(messages) < 2 {
		return nil, fmt.Errorf("%s: %w: it was trimmed, cleared or replaced; nothing was written",
			OpAnswer, ErrAnswerGone)
	}
	return messages[1:], nil
}
