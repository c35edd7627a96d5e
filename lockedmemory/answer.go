package lockedmemory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// After these errors, the call has written nothing. ErrStopped alone may come while the function of an Answer
// runs. Otherwise it was not run.
var (
	// ErrAnswerGone: the message was answered before, and its answer was trimmed, cleared or replaced since.
	ErrAnswerGone = errors.New("lockedmemory: answered before, and the answer is gone")
	// ErrInvalidID: the ID of a message is empty or longer than 512 bytes, or stands twice in one call.
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
	return first(m.answer(ctx, &answers[M, D]{name: OpAnswer, questions: []Question[M]{{ID: id, Message: question}},
		fn: func(ctx context.Context, _ []Question[M]) ([]M, error) { return fn(ctx) }}, opts))
}

// Once is a [LockedMemory.Turn] for a message, for a caller that stores the exchange itself: fn stores by
// [LockedMemory.SaveOnce] with the ID. If the ID is known, Once does not run fn, and returns the messages of the
// stored exchange. It also returns them if fn has stored them, and has lost its lease since. Most callers want
// [LockedMemory.Answer].
//
// The errors are those of fn and Turn, [ErrInvalidID], [ErrAnswerGone] and [ErrStopped]. With Refuse and
// Interrupt, Once does what Answer does.
func (m *LockedMemory[M, D]) Once(ctx context.Context, id string, fn func(ctx context.Context) error,
	opts ...distlock.CallOption) (stored []M, err error) {
	return first(m.answer(ctx, &answers[M, D]{name: OpTurn, questions: []Question[M]{{ID: id}}, once: fn}, opts))
}

// first returns the result of a call with one question.
func first[M any](results []Result[M], err error) ([]M, error) {
	if len(results) == 0 {
		return nil, err
	}
	return results[0].Answer, results[0].Err
}

// Result is what became of a question.
type Result[M any] struct {
	Answer []M
	Err    error
}

// AnswerAll is [LockedMemory.Answer] for several questions, of at most Options.MaxMessage together. In one turn, fn
// gets those that are open, and returns one answer to all of them. The exchange has their messages, in order, and
// then the answer. So each of their Answers, SaveOnces and AnswerAlls finds it. If a Stop closes one of them while fn
// runs, fn runs again for the others.
//
// The results are in the order of the questions. Each has an answer or an error, as Answer would return it. An
// error beside them says why questions are still open: repeat the call. Further errors: [ErrInvalidID] for an ID
// that stands twice, and distlock.ErrInvalidOption with the policy [Interrupt].
func (m *LockedMemory[M, D]) AnswerAll(ctx context.Context, questions []Question[M],
	fn func(ctx context.Context, open []Question[M]) (answer []M, err error), opts ...distlock.CallOption) ([]Result[M], error) {
	if m.opts.Busy == Interrupt { // ⚑ a copy of the second message would interrupt its own answer
		return nil, fmt.Errorf("%s: %w: the BusyPolicy is Interrupt; nothing was written: use Queue or Refuse",
			OpAnswerAll, distlock.ErrInvalidOption)
	}
	if len(questions) == 0 {
		return nil, nil
	}
	return m.answer(ctx, &answers[M, D]{name: OpAnswerAll, questions: questions, fn: fn}, opts)
}

func (m *LockedMemory[M, D]) answer(ctx context.Context, a *answers[M, D], opts []distlock.CallOption) ([]Result[M], error) {
	if err := m.needsStore(a.name); err != nil {
		return nil, err
	}
	a.m, a.begin = m, m.store.Begin
	a.results, a.decided = make([]Result[M], len(a.questions)), make([]bool, len(a.questions))
	for i, q := range a.questions {
		hash, err := m.store.HashOf(q.ID)
		if err == nil && slices.Contains(a.hashes, hash) {
			err = fmt.Errorf("%s: %w: that of question %d stands twice; nothing was written", a.name, ErrInvalidID, i+1)
		}
		if err != nil {
			return nil, err
		}
		a.hashes = append(a.hashes, hash)
	}
	key, _ := m.key(ctx) // turn returns the error
	// ⚑ The lease of another turn is for other work. In a Once, all stores under the lease would read the ID.
	if _, joins := m.locker.FromContext(ctx, key); joins || a.once != nil {
		a.begin = m.store.Answered
	}
	err := m.turn(ctx, a.name, func(ctx context.Context) error {
		for range a.questions {
			if again, err := a.try(ctx); !again {
				return err
			}
		}
		return fmt.Errorf("%s: %w: other calls have decided questions; nothing was written: repeat the call", a.name, distlock.ErrInterrupted)
	}, message{hash: a.hashes[0], read: a.readFirst}, append(opts[:len(opts):len(opts)], fencing.ForWork(a.hashes[0]))...)
	if a.name == OpAnswerAll && errors.Is(err, ErrStopped) { // ⚑ another message is, as one that fn has answered
		err = fmt.Errorf("%s: %w: %v", a.name, distlock.ErrInterrupted, err)
	}
	return a.results, a.settle(ctx, err)
}

// answers is a call of Answer, AnswerAll or Once.
type answers[M, D any] struct {
	m         *LockedMemory[M, D]
	name      string
	questions []Question[M]
	fn        func(ctx context.Context, open []Question[M]) ([]M, error)
	once      func(ctx context.Context) error // of a Once, which has no fn
	ran       bool                            // once has returned nil
	hashes    []string
	results   []Result[M]
	decided   []bool // the question has its result
	begin     func(context.Context, string) (Exchange[M], bool, error)
	ended     bool // the turn began to wait before a Stop of the session
}

// look reads what became of a question.
func (a *answers[M, D]) look(ctx context.Context, i int, read func(context.Context, string) (Exchange[M], bool, error)) error {
	exchange, known, err := read(ctx, a.questions[i].ID)
	answer := exchange.Answer()
	if a.once != nil {
		answer = exchange.Messages
	}
	switch a.decided[i] = known; {
	case !known:
		return err
	case err != nil:
		a.results[i].Err = err
	case len(answer) == 0:
		a.results[i].Err = fmt.Errorf("%s: %w: the stored exchange has no answer; nothing was written", a.name, ErrAnswerGone)
	default:
		a.results[i].Answer = answer
	}
	return nil
}

// readFirst takes the result of the first question, which is decided, without a lease.
func (a *answers[M, D]) readFirst(ctx context.Context) error {
	err := a.look(withLease(ctx, nil), 0, a.m.store.Answered)
	return cmp.Or(err, a.results[0].Err)
}

// try answers the open questions. again says that the store has refused, because one of them was decided.
func (a *answers[M, D]) try(ctx context.Context) (again bool, err error) {
	var open []Question[M]
	var ids, superseded []string
	var messages []M
	for i, q := range a.questions {
		read := a.m.store.Answered
		if i == 0 {
			read = a.begin
		}
		if !a.decided[i] && !a.listed(ctx, q.ID) {
			if err := a.look(ctx, i, read); err != nil {
				a.ended = errors.Is(err, distlock.ErrInterrupted)
				return false, err
			}
		}
		switch {
		case a.decided[i] || q.Err != nil:
		case q.Superseded:
			superseded = append(superseded, q.ID)
		default:
			open, ids, messages = append(open, q), append(ids, q.ID), append(messages, q.Message)
		}
	}
	if len(open) == 0 {
		if a.name != OpAnswerAll {
			err = a.results[0].Err
		}
		return false, err
	}
	if a.once != nil {
		err = a.once(ctx)
		a.ran = err == nil
		return false, err
	}
	if err := a.m.store.Check(messages...); err != nil { // before fn is paid for
		return false, err
	}
	answer, err := a.fn(ctx, open)
	switch {
	case err != nil:
		return false, err
	case len(answer) == 0:
		return false, fmt.Errorf("%s: %w: the function returned no message; nothing was written: return an answer or an error",
			a.name, distlock.ErrInvalidOption)
	}
	messages = append(messages, answer...)
	if a.name == OpAnswer {
		err = a.m.SaveOnce(ctx, ids[0], messages...)
	} else {
		err = a.m.storeStep(ctx, OpSaveOnce, func(ctx context.Context) error {
			err := a.m.store.AppendAll(ctx, ids, superseded, messages...)
			// ⚑ A Stop is no conflict of IDs for an operator.
			if again = errors.Is(err, ErrStopped) || refusalOf(err) == distlock.OutcomeConflict; again {
				err = fmt.Errorf("%w: %v", distlock.ErrInterrupted, err)
			}
			return err
		})
	}
	if err != nil {
		return again, err
	}
	for i, q := range a.questions {
		switch {
		case a.decided[i], q.Err != nil:
		case q.Superseded:
			a.results[i].Err, a.decided[i] = ErrSuperseded, true
		default:
			a.results[i].Answer, a.decided[i] = answer, true
		}
	}
	return false, nil
}

// listed reports whether a Pending of the turn has returned a question. ⚑ An Answer or Once always reads: a SaveOnce
// cannot tell an answer that was stored after the list.
func (a *answers[M, D]) listed(ctx context.Context, id string) (listed bool) {
	if lease, ok := Lease(ctx); ok && a.name == OpAnswerAll {
		_, listed = listedUnder(lease).LoadAndDelete(id)
	}
	return listed
}

// settle gives the open questions a result, after a turn that ended with err. It returns why they are open.
func (a *answers[M, D]) settle(ctx context.Context, err error) (failure error) {
	isCut := (errors.Is(err, distlock.ErrInterrupted) || errors.Is(err, distlock.ErrLost)) && !errors.Is(err, distlock.ErrOutcomeUnknown)
	for i, q := range a.questions {
		if !a.decided[i] && isCut {
			ctx := withLease(ctx, nil)
			if a.ended { // ⚑ a Stop of the session did not see the message, which waited
				_, _, _, _ = a.m.store.CloseMessage(ctx, a.hashes[i], "", 0, 0, 0)
			}
			_ = a.look(ctx, i, a.m.store.Answered)
		}
		if a.decided[i] { // stored, even if the lease was lost since
			continue
		}
		// Without an error, the questions that come instead were decided before, or a Delete came.
		if a.results[i].Err = cmp.Or(q.Err, err); a.results[i].Err == nil && !a.ran {
			a.results[i].Err = fmt.Errorf("%s: %w: the message is open: repeat the call", a.name, distlock.ErrInterrupted)
		}
		failure = cmp.Or(failure, err, a.results[i].Err)
	}
	return failure
}
