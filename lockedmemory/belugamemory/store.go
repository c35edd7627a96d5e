package belugamemory

import (
	"context"
	"iter"

	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

// The methods of this file need a session store, such as that of New. In front of another memory they fail
// with errors.ErrUnsupported. lockedmemory.LockedMemory has the same methods, and states what they do.

// Answer asks fn for the answer to a question, stores both as one exchange under an ID, and returns the
// messages of the answer. If the ID is known, it returns the stored answer and does not run fn. It returns
// the error of fn unchanged, unless the lease was lost. See lockedmemory.LockedMemory.Answer.
func (m *Memory) Answer(ctx context.Context, id string, question schema.Message,
	fn func(ctx context.Context) ([]schema.Message, error)) (answer []schema.Message, err error) {
	err = codes.Under("belugamemory.answer", func(fn codes.Step) (err error) {
		if err = m.usable(); err == nil {
			answer, err = m.locked.Answer(ctx, id, question, func(ctx context.Context) ([]schema.Message, error) {
				err := fn(ctx)
				return answer, err
			})
		}
		return err
	}, func(ctx context.Context) (err error) {
		answer, err = fn(ctx)
		return err
	})
	return answer, err
}

// SaveOnce is [Memory.Append] under the ID of the message that is answered: repeated with the same messages,
// it stores nothing. Other messages under the ID: sessionstore.ErrIDConflict.
func (m *Memory) SaveOnce(ctx context.Context, id string, messages ...schema.Message) error {
	return m.store("belugamemory.save_once", func() error { return m.locked.SaveOnce(ctx, id, messages...) },
		messages...)
}

// Append is [Memory.Save] for one exchange of any number of messages: a question, tool calls, their
// results, and the answer.
func (m *Memory) Append(ctx context.Context, messages ...schema.Message) error {
	return m.store("belugamemory.append", func() error { return m.locked.Append(ctx, messages...) }, messages...)
}

// store runs a Save, Append or SaveOnce.
func (m *Memory) store(op string, save func() error, messages ...schema.Message) error {
	return m.write(op, func() error {
		if err := codes.TypedNil(messages...); err != nil {
			return err
		}
		return save()
	})
}

// Replace puts exchanges in the place of a range: to edit, to answer anew, to compact, to erase. After an
// unknown outcome a retry is safe: sessionstore.ErrRange then says that it was done.
func (m *Memory) Replace(ctx context.Context, from, to lockedmemory.Place,
	exchanges ...lockedmemory.Exchange[schema.Message]) error {
	return m.write("belugamemory.replace", func() error { return m.locked.Replace(ctx, from, to, exchanges...) })
}

// Fork copies the turns up to that of a place into another session, which has no exchange. to is the name that
// [SessionKey] makes. After an unknown outcome, repeat it: sessionstore.ErrNotEmpty then says that it was done.
func (m *Memory) Fork(ctx context.Context, to string, upTo lockedmemory.Place) error {
	return m.write("belugamemory.fork", func() error { return m.locked.Fork(ctx, to, upTo) })
}

// Delete removes the session for good: the history and the IDs.
func (m *Memory) Delete(ctx context.Context) error {
	return m.write("belugamemory.delete", func() error { return m.locked.Delete(ctx) })
}

// Answered returns the exchange that is stored under an ID. With lockedmemory.ErrAnswerGone, known is true,
// and the exchange is no longer in the history.
func (m *Memory) Answered(ctx context.Context, id string) (
	exchange lockedmemory.Exchange[schema.Message], known bool, err error) {
	if err = m.usable(); err == nil {
		exchange, known, err = m.locked.Answered(ctx, id)
	}
	return exchange, known, codes.Of("belugamemory.answered", err)
}

// Last returns the last n exchanges in order, and the newest turn in any case.
func (m *Memory) Last(ctx context.Context, n int) ([]lockedmemory.Exchange[schema.Message], error) {
	return ask(m, "belugamemory.last", func() ([]lockedmemory.Exchange[schema.Message], error) {
		return m.locked.Last(ctx, n)
	})
}

// Backward yields the exchanges before a place, the newest first. The zero Place is the end.
func (m *Memory) Backward(ctx context.Context, before lockedmemory.Place,
) iter.Seq2[lockedmemory.Exchange[schema.Message], error] {
	return coding(m, "belugamemory.backward", func() iter.Seq2[lockedmemory.Exchange[schema.Message], error] {
		return m.locked.Backward(ctx, before)
	})
}

// Forward yields the exchanges after a place, in order. The zero Place is the beginning.
func (m *Memory) Forward(ctx context.Context, after lockedmemory.Place,
) iter.Seq2[lockedmemory.Exchange[schema.Message], error] {
	return coding(m, "belugamemory.forward", func() iter.Seq2[lockedmemory.Exchange[schema.Message], error] {
		return m.locked.Forward(ctx, after)
	})
}

// Sessions yields the names of the sessions that have an exchange, for jobs. A name is that of [SessionKey]:
// the tenant, a colon and the session ID, in which %3A is a colon and %25 a percent sign.
func (m *Memory) Sessions(ctx context.Context) iter.Seq2[string, error] {
	return coding(m, "belugamemory.sessions", func() iter.Seq2[string, error] { return m.locked.Sessions(ctx) })
}

// Ping returns nil if the service of the sessions answers, and advice on its settings, for operators: log
// it when the application starts.
func (m *Memory) Ping(ctx context.Context) (advice []string, err error) {
	return ask(m, "belugamemory.ping", func() ([]string, error) { return m.locked.Ping(ctx) })
}

// MessageStore returns the sessions of m as the store of a memory.Recall, so that a composite memory keeps
// its tiers. All instances see one order. Append, All, Search and Clear work on the session of the context.
//
// Recall saves a question and its answer by two Appends. Wrap the recall or composite memory with
// [Memory.Locker] and [WithInnerSeparatesSessions]: then no other exchange comes between the two. If the
// process dies between them, the question stays without an answer, and each message is an exchange of its
// own for "window" and "max_exchanges". Without these limits of Recall, use m itself.
func (m *Memory) MessageStore() memory.MessageStore { return messageStore{m} }

type messageStore struct{ *Memory }

func (s messageStore) Append(ctx context.Context, message schema.Message) error {
	return s.Memory.Append(ctx, message)
}

func (s messageStore) All(ctx context.Context) ([]schema.Message, error) { return s.Load(ctx, "") }

// Search returns the newest k messages that have all words of the query, in order.
func (s messageStore) Search(ctx context.Context, query string, k int) ([]schema.Message, error) {
	found, err := s.Load(ctx, query)
	return found[max(0, len(found)-max(0, k)):], err
}

// coding gives the error of a sequence a code.
func coding[T any](m *Memory, op string, read func() iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := m.usable(); err != nil {
			yield(*new(T), codes.Of(op, err))
			return
		}
		for each, err := range read() {
			if !yield(each, codes.Of(op, err)) {
				return
			}
		}
	}
}
