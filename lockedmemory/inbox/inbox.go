// Package inbox answers the questions that a session's inbox has accepted: several at once, once each, and also
// those of processes that have died. See docs/howto/stop.md.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Options configure an [Inbox]. Nil, and zero fields, mean the defaults.
type Options struct {
	// Quiet is how old the newest question must be before a turn answers: a turn waits for more of them, and
	// answers all. It counts by the clock of the service. Default: no wait.
	Quiet time.Duration
	// Max bounds the wait of a turn for Quiet. Default: ten times Quiet.
	Max time.Duration
	// Most is how many questions one turn answers, the oldest first. Default: all.
	Most int
	// Newest answers the newest question alone. The others are superseded by its answer.
	Newest bool
	// Session returns the context of a session, for Sweep. Default: lockedmemory.WithSession.
	Session func(ctx context.Context, session string) context.Context
}

// Inbox answers pending questions. It is safe for concurrent use.
type Inbox[M, D any] struct {
	memory *lockedmemory.LockedMemory[M, D]
	opts   Options
}

// New makes an Inbox. It returns distlock.ErrInvalidOption for a nil memory, and for options out of range.
func New[M, D any](memory *lockedmemory.LockedMemory[M, D], opts *Options) (*Inbox[M, D], error) {
	b := &Inbox[M, D]{memory: memory}
	if opts != nil {
		b.opts = *opts
	}
	var problem string
	switch o := b.opts; {
	case memory == nil:
		problem = "the memory is nil: give the one of lockedmemory.New"
	case o.Quiet < 0 || o.Max < 0 || o.Most < 0:
		problem = fmt.Sprintf("Quiet is %s, Max %s and Most %d, but must not be negative", o.Quiet, o.Max, o.Most)
	case o.Most > 0 && o.Newest:
		problem = "Newest answers one question, so leave out Most"
	}
	if problem != "" {
		return nil, fmt.Errorf("inbox: %w: %s", distlock.ErrInvalidOption, problem)
	}
	if b.opts.Max == 0 {
		b.opts.Max = 10 * b.opts.Quiet
	}
	if b.opts.Session == nil {
		b.opts.Session = lockedmemory.WithSession
	}
	return b, nil
}

// Func answers questions of a session, as the function of lockedmemory's AnswerAll does.
type Func[M any] func(ctx context.Context, open []lockedmemory.Question[M]) (answer []M, err error)

// Submit puts a question, as lockedmemory's Put does, and returns its answer. In a turn, fn answers the questions
// that are pending, also those of other callers. If it fails for several, it is called for this one alone.
//
// The errors are those of Put and of lockedmemory's Answer, with sessionstore.ErrDeleted for a question that a
// Delete has removed. After an error that does not match lockedmemory.ErrStopped, the question may be pending:
// repeat the call, in any process, or leave the question to the next Submit or Sweep.
func (b *Inbox[M, D]) Submit(ctx context.Context, id string, question M, fn Func[M], opts ...distlock.CallOption) ([]M, error) {
	if err := b.memory.Put(ctx, id, question); err != nil {
		return nil, err
	}
	var answer []M
	for decided := false; !decided; {
		err := b.memory.Turn(ctx, func(ctx context.Context) (err error) {
			answer, decided, err = b.answer(ctx, id, fn)
			return err
		}, append(slices.Clip(opts), fencing.ForWork(storedriver.HashID(id)))...)
		if cut := errors.Is(err, distlock.ErrInterrupted) || errors.Is(err, distlock.ErrLost); cut && answer == nil {
			if answer, known, failure := b.answered(ctx, id); known {
				return answer, failure
			}
		}
		if err != nil && answer == nil {
			return nil, err
		}
	}
	return answer, nil
}

// answer answers the pending questions in the turn of ctx. decided says that that of id has its result.
func (b *Inbox[M, D]) answer(ctx context.Context, id string, fn Func[M]) (answer []M, decided bool, err error) {
	isMine := func(q lockedmemory.Question[M]) bool { return q.ID == id }
	pending, batch, err := b.batch(ctx)
	if err != nil {
		return nil, false, err
	}
	i := slices.IndexFunc(pending, isMine)
	if i < 0 {
		answer, known, err := b.answered(ctx, id)
		if !known && err == nil { // ⚑ no second Put: it would undo the Delete
			err = fmt.Errorf("inbox: %w: the question was removed with it", sessionstore.ErrDeleted)
		}
		return answer, true, err
	} else if pending[i].Err != nil {
		return nil, true, pending[i].Err
	}
	results, err := b.memory.AnswerAll(ctx, batch, fn)
	if at := slices.IndexFunc(batch, isMine); at >= 0 && (err == nil || len(batch) == 1) {
		return results[at].Answer, true, results[at].Err
	}
	if err != nil && goesOn(ctx) && !b.opts.Newest { // ⚑ a question that cannot be answered is no reason for the others to fail
		results, _ := b.memory.AnswerAll(ctx, pending[i:i+1], fn)
		return results[0].Answer, true, results[0].Err
	}
	return nil, false, err
}

// answered returns the answer that is stored under an ID. With known, it has an answer or an error.
func (b *Inbox[M, D]) answered(ctx context.Context, id string) (answer []M, known bool, err error) {
	exchange, known, err := b.memory.Answered(ctx, id)
	if answer = exchange.Answer(); len(answer) > 0 || !known || err != nil {
		return answer, known, err
	}
	return nil, true, fmt.Errorf("inbox: %w: the stored exchange has no answer", lockedmemory.ErrAnswerGone)
}

// batch returns the pending questions, and those that the turn of ctx is to answer.
func (b *Inbox[M, D]) batch(ctx context.Context) (pending, batch []lockedmemory.Question[M], err error) {
	for began := time.Now(); ; {
		if pending, err = b.memory.Pending(ctx); err != nil {
			return nil, nil, err
		}
		batch = slices.DeleteFunc(slices.Clone(pending), func(q lockedmemory.Question[M]) bool { return q.Err != nil })
		last := len(batch) - 1
		if last < 0 {
			return pending, nil, nil
		}
		if wait := min(b.opts.Quiet-batch[last].Age, b.opts.Max-time.Since(began)); wait > 0 {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
		}
		if b.opts.Most > 0 {
			batch = batch[:min(b.opts.Most, len(batch))]
		}
		for i := range batch[:len(batch)-1] {
			batch[i].Superseded = b.opts.Newest
		}
		return pending, batch, nil
	}
}

// goesOn reports whether the turn of ctx was not cut off. ⚑ ctx ends some time after its lease.
func goesOn(ctx context.Context) bool {
	lease, _ := lockedmemory.Lease(ctx)
	return ctx.Err() == nil && lease.Context().Err() == nil
}

// Sweep answers the pending questions of all sessions, as those of dead processes. Call it when an instance
// starts, and now and then. It waits for sessions that are busy. answered counts the questions that have an answer.
// The error joins those of the sessions; the questions of these stay pending.
func (b *Inbox[M, D]) Sweep(ctx context.Context, fn Func[M]) (answered int, err error) {
	for session, failure := range b.memory.Inboxes(ctx) {
		for more := true; more && failure == nil; {
			failure = b.memory.Turn(b.opts.Session(ctx, session), func(ctx context.Context) (err error) {
				if lease, _ := lockedmemory.Lease(ctx); lease.Key() != session { // ⚑ another inbox
					return fmt.Errorf("inbox: %w: Options.Session names %q: return a context that the KeyFunc reads as this session",
						distlock.ErrInvalidOption, lease.Key())
				}
				var n int
				n, more, err = b.sweep(ctx, fn)
				answered += n
				return err
			})
		}
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("session %q: %w", session, failure))
		}
	}
	return answered, err
}

// sweep answers the pending questions in the turn of ctx. more says that there may be more.
func (b *Inbox[M, D]) sweep(ctx context.Context, fn Func[M]) (answered int, more bool, err error) {
	pending, batch, err := b.batch(ctx)
	var broken error
	for _, q := range pending {
		broken = errors.Join(broken, q.Err)
	}
	if err != nil || len(batch) == 0 { // the broken ones are no reason to leave the others
		return 0, false, errors.Join(err, broken)
	}
	answers := func(questions []lockedmemory.Question[M]) error {
		results, err := b.memory.AnswerAll(ctx, questions, fn)
		for _, r := range results {
			if r.Answer != nil {
				answered++
			}
		}
		return err
	}
	if err = answers(batch); err == nil {
		return answered, true, nil
	} else if b.opts.Newest || !goesOn(ctx) {
		return answered, false, errors.Join(err, broken)
	}
	// ⚑ Also those after the batch: the next turn would have the same batch.
	rest := slices.DeleteFunc(pending, func(q lockedmemory.Question[M]) bool { return q.Err != nil })
	if len(batch) == 1 {
		rest = rest[1:]
	} else {
		err = nil
	}
	for i := range rest {
		if goesOn(ctx) {
			err = errors.Join(err, answers(rest[i:i+1]))
		}
	}
	return answered, err == nil, errors.Join(err, broken)
}
