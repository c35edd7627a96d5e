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

// After these errors, nothing was written, and the function of an Answer was not run.
var (
	// ErrAnswerGone: the message was answered before, and its answer was trimmed, cleared or replaced since.
	ErrAnswerGone = errors.New("lockedmemory: answered before, and the answer is gone")
	// ErrInvalidID: the ID of a message is empty or longer than 512 bytes, or stands twice in a Replace.
	ErrInvalidID = errors.New("lockedmemory: invalid message ID")
)

// forID shows the ID to calls that find the session busy, see distlock.BusyError.
func forID(id string) distlock.CallOption {
	sum := sha256.Sum256([]byte(id))
	return fencing.ForWork(hex.EncodeToString(sum[:16]))
}

// Answer is a [LockedMemory.Turn] that asks fn for the answer to a question, and stores both as one exchange
// under the ID of the question. If the ID is known, Answer returns the stored answer, and does not run fn.
// So repeat it after an error, in any process. The question is not compared. To return a stored answer
// without a wait for the lock, ask [LockedMemory.Answered] first.
//
// fn returns the messages of the answer: tool calls, their results, the text. A crash leaves the whole
// answer or nothing. A write of fn with its context takes effect at once, also if fn fails after it.
//
// With an error, answer is nil, and was stored at most if the error is distlock.ErrOutcomeUnknown. The
// errors are those of fn, Turn and SaveOnce, [ErrAnswerGone], and distlock.ErrInvalidOption if fn has
// returned no message. With [Refuse], a distlock.BusyError whose SameID is true says that another Answer is
// at work on the message.
func (m *LockedMemory[M, D]) Answer(ctx context.Context, id string, question M,
	fn func(ctx context.Context) (answer []M, err error), opts ...distlock.CallOption) (answer []M, err error) {
	if err := m.needsStore(OpAnswer); err != nil {
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
		if err := m.store.Check(question); err != nil { // before fn is paid for
			return err
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
