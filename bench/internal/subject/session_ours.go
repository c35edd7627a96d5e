package subject

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// store is this library's: a session store under its lock, both on one Redis over one client.
type store struct{ *ours }

func openStore(s Setup) (Sessions, error) {
	l, err := openOurs(s)
	if err != nil {
		return nil, err
	}
	return store{l.(*ours)}, nil
}

func (s store) Session(name string) (Session, error) {
	key := lockedmemory.FixedKey(name)
	inner, err := redisstore.New(s.client, key, sessionstore.JSON[Message]{}, nil, nil)
	if err != nil {
		return nil, err
	}
	memory, err := lockedmemory.New(inner, s.locker, key, nil)
	if err != nil {
		return nil, err
	}
	return &History{memory, inner, "session:" + redislock.HashTag(name), s, key}, nil
}

// History is a session of this library, with the operations that no other subject has.
type History struct {
	*lockedmemory.LockedMemory[Message, Message]
	Store  *sessionstore.Store[Message, Message]
	Prefix string // of its keys in Redis

	of  store
	key lockedmemory.KeyFunc
}

// Bounded returns the session as a store with Retention.MaxExchanges has it.
func (h *History) Bounded(most int) (Session, error) {
	keep := &sessionstore.Retention{MaxExchanges: most}
	inner, err := redisstore.New(h.of.client, h.key, sessionstore.JSON[Message]{}, keep, nil)
	if err != nil {
		return nil, err
	}
	return lockedmemory.New(inner, h.of.locker, h.key, nil)
}

// Plain returns a pipeline that adds exchanges to a new stream, with as many bytes as this library stores.
func Plain(ctx context.Context, client *redis.Client, stream string, n int,
	exchange func(n int) (question, answer Message)) (redis.Pipeliner, error) {
	pipe := client.Pipeline()
	for i := range n {
		fields, err := entry(exchange(i))
		if err != nil {
			return nil, err
		}
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: fmt.Sprintf("%d-1000000", i+1), Values: fields})
	}
	return pipe, nil
}

// Extend appends exchanges 0 to n-1 to a session of this library that has none, much faster than Saves
// would. It writes the entries of redisstore, a turn with one Save every second. Its callers check that
// Load finds them.
func Extend(ctx context.Context, s Setup, name string, n int, exchange func(n int) (question, answer Message)) error {
	const second, together = 1_000_000, 1000 // a token is a time in µs
	client := s.client()
	defer client.Close()
	now, err := client.Time(ctx).Result()
	if err != nil {
		return err
	}
	first := now.UnixMicro() - int64(n+1)*second
	for done := 0; done < n; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pipe := client.Pipeline()
		for range min(together, n-done) {
			token := first + int64(done)*second
			fields, err := entry(exchange(done))
			if err != nil {
				return err
			}
			fields[2], fields[4] = "m", "m"
			done++
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: "session:" + redislock.HashTag(name) + "log", ID: fmt.Sprintf("%d-1000000", token), Values: fields})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("filling a session: %w", err)
		}
	}
	return nil
}
