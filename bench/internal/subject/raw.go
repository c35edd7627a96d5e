package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// deleteIfEqual is what a lock without fences, renewal and idempotence needs to release.
var deleteIfEqual = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

// raw is the barest lock there is: SET NX PX and a script that compares and deletes. It cannot wait.
type raw struct {
	client *redis.Client
	ttl    time.Duration
}

func openRaw(s Setup) (Locker, error) { return &raw{s.client(), s.TTL}, nil }

func (r *raw) Acquire(ctx context.Context, key string) (Held, error) {
	ok, err := r.client.SetNX(ctx, key, "owner", r.ttl).Result()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("raw: %s is held", key)
	}
	return rawHeld{r.client, key}, nil
}

func (r *raw) Close() error { return r.client.Close() }

type rawHeld struct {
	client *redis.Client
	key    string
}

func (h rawHeld) Release(ctx context.Context) error {
	deleted, err := deleteIfEqual.Run(ctx, h.client, []string{h.key}, "owner").Int()
	if err == nil && deleted == 0 {
		err = errors.New("raw: the lock is not held any more")
	}
	return err
}
