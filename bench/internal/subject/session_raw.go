package subject

import (
	"context"
	"encoding/json"
	"fmt"

	bsm "github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// op has as many bytes as the operation ID that this library gives a write. A write without a lock
// has none.
const op = "0123456789abcdef0123456789abcdef"

// entry is an exchange as the fields of a stream. This library stores as many bytes, under the field
// "m" for both messages.
func entry(question, answer Message) ([]any, error) {
	in, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return []any{"op", op, "in", in, "out", out}, nil
}

// streams keep a session as a stream, with nothing but XADD.
type streams struct{ client *redis.Client }

func (s *streams) Session(name string) (Session, error) {
	return &stream{s.client, "stream:" + name}, nil
}
func (s *streams) Close() error { return s.client.Close() }

type stream struct {
	client *redis.Client
	key    string
}

func (s *stream) Save(ctx context.Context, question, answer Message) error {
	fields, err := entry(question, answer)
	if err != nil {
		return err
	}
	return s.client.XAdd(ctx, &redis.XAddArgs{Stream: s.key, Values: fields}).Err()
}

func (s *stream) Load(ctx context.Context, _ string) (messages []Message, err error) {
	entries, err := s.client.XRange(ctx, s.key, "-", "+").Result()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		for _, field := range []string{"in", "out"} {
			text, _ := e.Values[field].(string)
			var m Message
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				return nil, fmt.Errorf("entry %s: %w", e.ID, err)
			}
			messages = append(messages, m)
		}
	}
	return messages, nil
}

// bsmStreams keep it so, and take a lock for each write: three round trips.
type bsmStreams struct {
	streams
	locker Locker
}

func openBsmStreams(s Setup) (Sessions, error) {
	client := s.client()
	return &bsmStreams{streams{client}, &bsmLocker{bsm.New(client), client, s.TTL, nil}}, nil
}

func (s *bsmStreams) Session(name string) (Session, error) {
	return &bsmStream{stream{s.client, "locked-stream:" + name}, s.locker, "lock:" + name}, nil
}

type bsmStream struct {
	stream
	locker Locker
	lock   string
}

func (s *bsmStream) Save(ctx context.Context, question, answer Message) error {
	held, err := s.locker.Acquire(ctx, s.lock)
	if err != nil {
		return err
	}
	if err := s.stream.Save(ctx, question, answer); err != nil {
		return err
	}
	return held.Release(ctx)
}

// lists keep a session as a list with one element per exchange.
type lists struct{ client *redis.Client }

func (l *lists) Session(name string) (Session, error) { return &list{l.client, "list:" + name}, nil }
func (l *lists) Close() error                         { return l.client.Close() }

type list struct {
	client *redis.Client
	key    string
}

type exchange struct {
	In  Message `json:"in"`
	Out Message `json:"out"`
}

func (l *list) Save(ctx context.Context, question, answer Message) error {
	text, err := json.Marshal(exchange{question, answer})
	if err != nil {
		return err
	}
	return l.client.RPush(ctx, l.key, text).Err()
}

func (l *list) Load(ctx context.Context, _ string) ([]Message, error) {
	texts, err := l.client.LRange(ctx, l.key, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	messages := make([]Message, 0, 2*len(texts))
	for _, text := range texts {
		var e exchange
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return nil, err
		}
		messages = append(messages, e.In, e.Out)
	}
	return messages, nil
}
