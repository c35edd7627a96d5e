// Package history is a conversation memory as many agents have it: a list in Redis, without a lock.
package history

import (
	"context"
	"encoding/json"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// latency is added to every write, as if Redis were on another machine.
	latency = 2 * time.Millisecond
	// keep is when a list expires that nobody could remove, because the program was killed.
	keep = time.Hour
)

// Message is a message of a user, or the answer to it.
type Message struct {
	Role     string // "user" or "assistant"
	Turn     int    // the number of the user's message, from 0
	Instance string // who dealt with it
	Seen     int    // of an answer: how many messages the model was shown, besides the question
	Text     string
}

// MarshalBinary is what Redis keeps.
func (m Message) MarshalBinary() ([]byte, error) { return json.Marshal(m) }

// UnmarshalBinary reads what Redis kept.
func (m *Message) UnmarshalBinary(text []byte) error { return json.Unmarshal(text, m) }

// Document is what a search would find.
type Document struct{ Text string }

// List is the memory of one conversation.
type List struct {
	client redis.UniversalClient
	key    string
}

// New makes the memory of the conversation at key.
func New(client redis.UniversalClient, key string) *List { return &List{client, key} }

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
	pipe.Expire(ctx, l.key, keep)
	_, err := pipe.Exec(ctx)
	return err
}

// Load returns all messages.
func (l *List) Load(ctx context.Context, _ string) (messages []Message, err error) {
	err = l.client.LRange(ctx, l.key, 0, -1).ScanSlice(&messages)
	return messages, err
}

// Search finds nothing: the example does not search.
func (l *List) Search(context.Context, string, int) ([]Document, error) { return nil, nil }

// Clear removes all messages.
func (l *List) Clear(ctx context.Context) error { return l.client.Del(ctx, l.key).Err() }
