// Package history has the two memories of conversations that the example compares: a list of messages, as
// many agents have it, and a session store as if it were far away.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/hitch"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
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

// Log keeps the messages of one conversation on a server.
type Log interface {
	Append(ctx context.Context, message []byte) error
	All(ctx context.Context) (messages [][]byte, err error)
}

// List is the memory of one conversation: a log, without a lock.
type List struct{ Log Log }

// Save appends both messages, one after the other: what others save can come between.
func (l List) Save(ctx context.Context, input, output Message) error {
	for _, m := range []Message{input, output} {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		time.Sleep(latency)
		if err := l.Log.Append(ctx, text); err != nil {
			return err
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

// Far is a session store as if it were on another machine. A write to it is sent when the lease was checked for the last time: if its
// instance is paused then, it reaches the store late, and only the store can refuse it.
type Far struct {
	*Store
}

// Save is that of the store.
func (f Far) Save(ctx context.Context, input, output Message) error {
	time.Sleep(latency)
	hitch.At(ctx, hitch.Write)
	err := f.Store.Save(context.WithoutCancel(ctx), input, output) // it is on its way
	hitch.At(ctx, hitch.Answer)
	if errors.As(err, new(*sessionstore.StaleError)) {
		spans.Refused(ctx)
	}
	return err
}
