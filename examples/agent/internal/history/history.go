// Package history has the messages of a conversation, and what delays their writes.
package history

import (
	"context"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// Latency is added to every write, as if the server were on another machine.
const Latency = 2 * time.Millisecond

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

// Far is a session store as if it were on another machine. A write to it is sent when the lease was
// checked for the last time: if its instance is paused then, it reaches the store late, and only
// the store can refuse it.
type Far struct {
	*Store
	*Hitch
}

// SaveOnce is that of the store.
func (f Far) SaveOnce(ctx context.Context, id string, messages ...Message) error {
	time.Sleep(Latency)
	f.At(Write)
	err := f.Store.SaveOnce(context.WithoutCancel(ctx), id, messages...) // it is on its way
	f.At(Answered)
	return err
}
