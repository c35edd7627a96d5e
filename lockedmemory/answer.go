package lockedmemory

import (
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// After these errors, the call has written nothing. ErrStopped alone may come while the function of an Answer
// runs. Otherwise it was not run.
var (
	// ErrAnswerGone: the message was answered before, and its answer was trimmed, cleared or replaced since.
	ErrAnswerGone = errors.New("lockedmemory: answered before, and the answer is gone")
	// ErrInvalidID: the ID of a message is empty or longer than 512 bytes, or stands twice in a Replace.
	ErrInvalidID = errors.New("lockedmemory: invalid message ID")
	// ErrStopped: a Stop came before the answer was stored. The message is never answered.
	ErrStopped = errors.New("lockedmemory: message stopped")
	// ErrSuperseded: a newer message came instead. It matches ErrStopped.
	ErrSuperseded error = superseded("lockedmemory: message superseded by a newer one")
)

// superseded is the type of ErrSuperseded.
type superseded string

func (e superseded) Error() string      { return string(e) }
func (superseded) Is(target error) bool { return target == ErrStopped }

// Answer is a [LockedMemory.Turn] that asks fn for the answer to a question, and stores both as one exchange
// under the ID of the question. If the ID is known, Answer returns the stored answer, and does not run fn.
// So repeat it after an error, in any process. The question is not compared. To return a stored answer
// without a wait for the lock, ask [LockedMemory.Answered] first.
//
// fn returns the messages of the answer: tool calls, their results, the text. A crash leaves the whole
// answer or nothing. A write of fn with its context takes effect at once, also if fn fails after it.
//
// With an error, answer is nil, and was stored at most if the error is distlock.ErrOutcomeUnknown. The
// errors are those of fn, Turn and SaveOnce, [ErrAnswerGone], [ErrStopped], and distlock.ErrInvalidOption if
// fn has returned no message. After distlock.ErrInterrupted, the message is open. With [Refuse], a
// distlock.BusyError whose SameID is true says that another Answer is at work on the message.
func (m *LockedMemory[M, D]) Answer(ctx context.Context, id string, question M,
	fn func(ctx context.Context) (answer []M, err error), opts ...distlock.CallOption) (answer []M, err error) {
	if err := m.needsStore(OpAnswer); err != nil {
		return nil, err
	}
	hash, err := m.store.HashOf(id)
	if err != nil {
		return nil, err
	}
	key, _ := m.key(ctx) // turn returns the error
	begin, ended := m.store.Begin, false
	if _, joins := m.locker.FromContext(ctx, key); joins { // ⚑ the lease is for other work
		begin = m.store.Answered
	}
	of := message{hash: hash}
	take := func(exchange Exchange[M], known bool, err error) error {
		switch {
		case err != nil || !known:
			return err
		case len(exchange.Messages) < 2:
			return fmt.Errorf("%s: %w: the stored exchange has no answer; nothing was written", OpAnswer, ErrAnswerGone)
		}
		answer = exchange.Messages[1:]
		return nil
	}
	of.read = func(ctx context.Context) error {
		exchange, known, err := m.store.Answered(withLease(ctx, nil), id)
		if err == nil && !known {
			err = fmt.Errorf("%s: %w: the session was deleted since the message was decided: repeat the call", OpAnswer, distlock.ErrInterrupted)
		}
		return take(exchange, known, err)
	}
	err = m.turn(ctx, OpAnswer, func(ctx context.Context) error {
		exchange, known, err := begin(ctx, id)
		if err = take(exchange, known, err); err != nil || known {
			ended = errors.Is(err, distlock.ErrInterrupted)
			return err
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
	}, of, append(opts[:len(opts):len(opts)], fencing.ForWork(hash))...)
	if answer != nil { // it is stored, even if the lease was lost since
		return answer, nil
	}
	isCut := errors.Is(err, distlock.ErrInterrupted) || errors.Is(err, distlock.ErrLost)
	if !isCut || errors.Is(err, distlock.ErrOutcomeUnknown) {
		return nil, err
	}
	ctx = withLease(ctx, nil)
	if ended { // ⚑ a Stop of the session did not see the message, which waited
		_, _, _, _ = m.store.CloseMessage(ctx, hash, "", 0, 0, 0)
	}
	if _, _, closed := m.store.Answered(ctx, id); errors.Is(closed, ErrStopped) {
		return nil, closed
	}
	return nil, err
}
