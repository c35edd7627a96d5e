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
	return lockedmemory.New(inner, s.locker, key, nil)
}

// Extend appends n exchanges to a session of this library that has none, much faster than Saves would. It writes what redisstore
// would have written, a turn with one Save every second; whoever uses it looks whether Load finds them.
func Extend(ctx context.Context, s Setup, name string, n int, question, answer Message) error {
	const second, together = 1_000_000, 1000 // a token is a time in µs
	client := s.client()
	defer client.Close()
	fields, err := entry(question, answer)
	if err != nil {
		return err
	}
	fields[2], fields[4] = "m", "m"
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
			done++
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: "session:" + redislock.HashTag(name) + "log", ID: fmt.Sprintf("%d-1000000", token), Values: fields})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("filling a session: %w", err)
		}
	}
	return nil
}
