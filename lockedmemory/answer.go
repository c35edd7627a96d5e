package lockedmemory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

var (
	// ErrAnswerGone: the message was answered before, and its answer is no longer in the history: it was
	// trimmed, cleared or replaced since. Nothing was written, and the function of the Answer was not run.
	ErrAnswerGone = errors.New("lockedmemory: answered before, and the answer is gone")
	// ErrInvalidID: the ID of a message is empty or longer than [MaxID], or stands twice in a Replace.
	// Nothing was written, and the function of an Answer was not run.
	ErrInvalidID = errors.New("lockedmemory: invalid message ID")
)

// MaxID is the longest ID of a message, in bytes.
const MaxID = 512

// CheckID returns [ErrInvalidID] for an ID that is empty or longer than [MaxID], for stores.
func CheckID(operation, id string) error {
	if id != "" && len(id) <= MaxID {
		return nil
	}
	return fmt.Errorf("%s: %w: it has %d bytes, 1 to %d are allowed; nothing was written: "+
		"use the ID of the message, or a hash of that ID", operation, ErrInvalidID, len(id), MaxID)
}

// forID shows the ID to calls that find the session busy, see distlock.BusyError.
func forID(id string) distlock.CallOption {
	sum := sha256.Sum256([]byte(id))
	return fencing.ForWork(hex.EncodeToString(sum[:16]))
}

// Answer is the loop of a chat service: a [LockedMemory.Turn] that asks fn for the answer to a
// question, stores both as one exchange, see [LockedMemory.SaveOnce], and returns the answer. The ID
// is that of the question. If the ID is known, Answer returns the stored answer and does not run fn.
// So after an error, repeat it with the same ID, in any process. The question is not compared. A
// stored answer needs the lock, too: to return it without a wait, ask [LockedMemory.Answered]
// first.
//
// fn loads as much of the history as it needs. It returns the messages of the answer: tool calls,
// their results, the text. A crash leaves the whole answer or nothing. What fn itself writes has no
// part in that: a Save, Replace or Clear with its context takes effect at once, also if fn fails
// after it. If fn has stored the ID itself, Answer fails as SaveOnce does.
//
// Errors, beside those of fn, Turn and SaveOnce:
//
//	ErrAnswerGone              answered before, and trimmed, cleared or replaced since
//	errors.ErrUnsupported      the inner memory is no [SessionStore]
//	distlock.ErrInvalidOption  fn has returned no message; nothing was written
//
// With Options.Busy set to [Refuse], a distlock.BusyError whose SameID is true says that another Answer is at
// work on the same message.
//
// With an error, the answer is nil and was not stored, unless the error is distlock.ErrOutcomeUnknown.
// Without an error the answer is stored, and has at least one message.
func (m *LockedMemory[M, D]) Answer(ctx context.Context, id string, question M,
	fn func(ctx context.Context) (answer []M, err error), opts ...distlock.CallOption) (answer []M, err error) {
	if _, err := m.sessionStore(OpAnswer); err != nil {
		return nil, err
	}
	if err := CheckID(OpAnswer, id); err != nil {
		return nil, err
	}
	err = m.turn(ctx, OpAnswer, func(ctx context.Context) error {
		exchange, known, err := m.Answered(ctx, id)
		switch {
		case err != nil:
			return err
		case known && len(exchange.Messages) < 2:
			return fmt.Errorf("%s: %w: the stored exchange has one message; nothing was written", OpAnswer, ErrAnswerGone)
		case known:
			answer = exchange.Messages[1:]
			return nil
		}
		if check, ok := m.inner.(interface{ Check(messages ...M) error }); ok { // before fn is paid for
			if err := check.Check(question); err != nil {
				return err
			}
		}
		messages, err := fn(ctx)
		switch {
		case err != nil:
			return err
		case len(messages) == 0:
			return fmt.Errorf("%s: %w: the function returned no message; nothing was written: return an answer or an error",
				OpAnswer, distlock.ErrInvalidOption)
		}
		if err = m.SaveOnce(ctx, id, append([]M{question}, messages...)...); err == nil {
			answer = messages
		}
		return err
	}, append(opts[:len(opts):len(opts)], forID(id))...)
	if answer != nil { // it is stored, even if the lease was lost since
		return answer, nil
	}
	return nil, err
}
