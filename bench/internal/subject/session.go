package subject

import (
	"context"
	"encoding/json"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// The names of the ways to keep sessions, except Ours and OursPostgres.
const (
	Stream = "XADD"
	List   = "LRANGE"
	Insert = "INSERT"
)

// Message is what sessions consist of.
type Message struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

// Session is one session, as a program sees it. Only Save is in each.
type Session struct {
	Save     func(ctx context.Context, question, answer Message) error
	Load     func(ctx context.Context, query string) ([]Message, error) // all messages; the bench uses no query
	SaveOnce func(ctx context.Context, id string, messages ...Message) error
	Turn     func(ctx context.Context, fn func(ctx context.Context) error, opts ...distlock.CallOption) error
}

// Sessions is a way to keep sessions. It returns the session of that name, which may be a new one,
// without I/O.
type Sessions func(name string) (Session, error)

// Ways are the compared ways to keep sessions by their names.
var Ways = map[string]Opener[Sessions]{
	Ours: openStore, OursPostgres: openPostgresStore, Stream: openStreams, List: openLists, Insert: openInserts,
}

type store = sessionstore.Store[Message, Message]

// memories are sessions of this library: a session store under its lock.
func memories(locker *distlock.Locker, makeStore func(lockedmemory.KeyFunc) (*store, error)) Sessions {
	return func(name string) (Session, error) {
		key := lockedmemory.FixedKey(name)
		inner, err := makeStore(key)
		if err != nil {
			return Session{}, err
		}
		memory, err := lockedmemory.New(inner, locker, key, nil)
		if err != nil {
			return Session{}, err
		}
		return Session{memory.Save, memory.Load, memory.SaveOnce, memory.Turn}, nil
	}
}

// openStore has the lock and the store on one Redis over one client.
func openStore(s *Setup, addr string) (Sessions, error) {
	client := s.client(addr)
	locker, err := s.onRedis(client)
	return memories(locker, func(key lockedmemory.KeyFunc) (*store, error) {
		return redisstore.New(client, key, sessionstore.JSON[Message]{}, nil, nil)
	}), err
}

// openPostgresStore has the store in the database of the lock.
func openPostgresStore(s *Setup, url string) (Sessions, error) {
	locker, pool, err := s.onPostgres(url)
	return memories(locker, func(key lockedmemory.KeyFunc) (*store, error) {
		return pgstore.New(pool, key, sessionstore.JSON[Message]{}, nil)
	}), err
}

// op has as many bytes as the operation ID that this library gives a write. A write without a lock
// has none.
const op = "0123456789abcdef0123456789abcdef"

// encoded returns both messages of an exchange as JSON.
func encoded(question, answer Message) (in, out []byte, err error) {
	if in, err = json.Marshal(question); err != nil {
		return nil, nil, err
	}
	out, err = json.Marshal(answer)
	return in, out, err
}

// openStreams opens sessions as streams, with nothing but XADD. This library stores as many bytes, under
// the field "m" for both messages.
func openStreams(s *Setup, addr string) (Sessions, error) {
	client := s.client(addr)
	return func(name string) (Session, error) {
		return Session{Save: func(ctx context.Context, question, answer Message) error {
			in, out, err := encoded(question, answer)
			if err != nil {
				return err
			}
			fields := []any{"op", op, "in", in, "out", out}
			return client.XAdd(ctx, &redis.XAddArgs{Stream: "stream:" + name, Values: fields}).Err()
		}}, nil
	}, nil
}

// openInserts opens sessions of bare INSERTs, each in a transaction of its own.
func openInserts(s *Setup, url string) (Sessions, error) {
	pool, err := s.pool(url + bare)
	if err != nil {
		return nil, err
	}
	return func(name string) (Session, error) {
		n := 0
		return Session{Save: func(ctx context.Context, question, answer Message) error {
			in, out, err := encoded(question, answer)
			if err != nil {
				return err
			}
			n++
			_, err = pool.Exec(ctx, "INSERT INTO bare_exchange VALUES ($1, $2, $3, $4)", name, n, op, [][]byte{in, out})
			return err
		}}, nil
	}, nil
}

type exchange struct {
	In  Message `json:"in"`
	Out Message `json:"out"`
}

// openLists opens sessions as lists with one element per exchange.
func openLists(s *Setup, addr string) (Sessions, error) {
	client := s.client(addr)
	save := func(ctx context.Context, key string, e exchange) error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		return client.RPush(ctx, key, text).Err()
	}
	load := func(ctx context.Context, key string) ([]Message, error) {
		texts, err := client.LRange(ctx, key, 0, -1).Result()
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
	return func(name string) (Session, error) {
		key := "list:" + name
		return Session{
			Save: func(ctx context.Context, in, out Message) error { return save(ctx, key, exchange{in, out}) },
			Load: func(ctx context.Context, _ string) ([]Message, error) { return load(ctx, key) },
		}, nil
	}, nil
}
