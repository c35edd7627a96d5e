// Package history has the two memories of conversations that the example compares: a list of
// messages, as many agents have it, and a session store as if it were far away.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// latency is added to every write, as if the server were on another machine.
const latency = 2 * time.Millisecond

// Memory is what Beluga's memory.Memory is with its own messages and documents.
type Memory = lockedmemory.Memory[Message, Message]

// Store keeps the conversations of the run with the lock.
type Store = sessionstore.Store[Message, Message]

// Message is a message of a user, or the answer to it.
type Message struct {
	Role     string // "user" or "assistant"
	Turn     int    // the number of the user's message, from 0
	Instance string // who dealt with it
	Seen     int    // of an answer: how many messages the model was shown, besides the question
	Text     string
}

// Question is the message of a user: an order of some books.
func Question(turn int, instance string) Message {
	return Message{Role: "user", Turn: turn, Instance: instance, Text: fmt.Sprintf("Add %d books to my order.", books(turn))}
}

// Answer is the answer of a model that has seen a history. It counts all books that were ordered
// there, so a stale answer has a wrong number.
func Answer(seen []Message, question Message) Message {
	ordered := books(question.Turn)
	for _, m := range seen {
		if m.Role == "user" {
			ordered += books(m.Turn)
		}
	}
	return Message{Role: "assistant", Turn: question.Turn, Instance: question.Instance, Seen: len(seen),
		Text: fmt.Sprintf("Your order has %d books.", ordered)}
}

// books is the number of books in a question.
func books(turn int) int { return 2 + turn*7%8 }

// Log keeps the messages of one conversation on a server.
type Log interface {
	Append(ctx context.Context, message []byte) error
	All(ctx context.Context) (messages [][]byte, err error)
}

// List is the memory of one conversation: a log, which knows no lock.
type List struct{ Log Log }

// Save appends both messages, one after the other, so messages of other instances can come between.
// A message is on its way when its instance is paused, so the end of ctx cannot call it back.
func (l List) Save(ctx context.Context, input, output Message) error {
	for i, m := range []Message{input, output} {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		time.Sleep(latency)
		if i == 0 {
			At(ctx, Write)
		}
		if err := l.Log.Append(context.WithoutCancel(ctx), text); err != nil {
			return err
		}
		if i == 0 {
			At(ctx, Answered)
		}
	}
	return nil
}

// Load returns all messages.
func (l List) Load(ctx context.Context, _ string) ([]Message, error) {
	texts, err := l.Log.All(ctx)
	messages := make([]Message, len(texts))
	for i := range texts {
		err = errors.Join(err, json.Unmarshal(texts[i], &messages[i]))
	}
	return messages, err
}

// Search is not supported: the example does not search.
func (l List) Search(context.Context, string, int) ([]Message, error) {
	return nil, errors.ErrUnsupported
}

// Clear is not supported: the example clears no history.
func (l List) Clear(context.Context) error { return errors.ErrUnsupported }

// Far is a session store as if it were on another machine. A write to it is sent when the lease was
// checked for the last time: if its instance is paused then, it reaches the store late, and only
// the store can refuse it.
type Far struct {
	*Store
}

// SaveOnce is that of the store.
func (f Far) SaveOnce(ctx context.Context, id string, messages ...Message) error {
	time.Sleep(latency)
	At(ctx, Write)
	err := f.Store.SaveOnce(context.WithoutCancel(ctx), id, messages...) // it is on its way
	At(ctx, Answered)
	return err
}
