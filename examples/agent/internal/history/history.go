// Package history has the two memories of conversations that the example compares: a list in Redis, as many agents have it, and
// a session store as if it were far away.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/examples/agent/internal/hitch"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

const (
	// latency is added to every write, as if Redis were on another machine.
	latency = 2 * time.Millisecond
	// Keep is when a history expires that nobody could remove, because the program was killed.
	Keep = time.Hour
)

// Message is a message of a user, or the answer to it.
type Message struct {
	Role     string // "user" or "assistant"
	Turn     int    // the number of the user's message, from 0
	Instance string // who dealt with it
	Seen     int    // of an answer: how many messages the model was shown, besides the question
	Text     string
}

// MarshalBinary is what the list keeps.
func (m Message) MarshalBinary() ([]byte, error) { return json.Marshal(m) }

// UnmarshalBinary reads what the list kept.
func (m *Message) UnmarshalBinary(text []byte) error { return json.Unmarshal(text, m) }

// List is the memory of one conversation: a list, without a lock.
type List struct {
	client redis.UniversalClient
	key    string
}

// NewList makes the memory of the conversation at key.
func NewList(client redis.UniversalClient, key string) *List { return &List{client, key} }

// Save appends both messages, one after the other: what others save can come between.
func (l *List) Save(ctx context.Context, input, output Message) error {
	if err := l.append(ctx, input); err != nil {
		return err
	}
	return l.append(ctx, output)
}

func (l *List) append(ctx context.Context, m Message) error {
	time.Sleep(latency)
	pipe := l.client.Pipeline()
	pipe.RPush(ctx, l.key, m)
	pipe.Expire(ctx, l.key, Keep)
	_, err := pipe.Exec(ctx)
	return err
}

// Load returns all messages.
func (l *List) Load(ctx context.Context, _ string) (messages []Message, err error) {
	err = l.client.LRange(ctx, l.key, 0, -1).ScanSlice(&messages)
	return messages, err
}

// Search finds nothing: the example does not search.
func (l *List) Search(context.Context, string, int) ([]Message, error) { return nil, nil }

// Clear removes all messages.
func (l *List) Clear(ctx context.Context) error { return l.client.Del(ctx, l.key).Err() }

// Far is a session store as if it were on another machine. A write to it is sent when the lease was checked for the last time: if its
// instance is paused then, it reaches the store late, and only the store can refuse it.
type Far struct {
	*sessionstore.Store[Message, Message]
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
