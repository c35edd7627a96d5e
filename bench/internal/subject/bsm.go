package subject

import (
	"context"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// The library retries only if its caller says how often. Its README does so every 100 ms. With 1 ms
// its waiters are as quick as possible, and the price shows in the commands.
const (
	bsmRetry      = 100 * time.Millisecond
	bsmEagerRetry = time.Millisecond
)

type bsmLocker struct {
	locker  *bsm.Client
	client  *redis.Client
	ttl     time.Duration
	options *bsm.Options
}

func openBsm(s Setup, retry time.Duration) (Locker, error) {
	client := s.client()
	return &bsmLocker{bsm.New(client), client, s.TTL, &bsm.Options{RetryStrategy: bsm.LinearBackoff(retry)}}, nil
}

func (l *bsmLocker) Acquire(ctx context.Context, key string) (Held, error) {
	lock, err := l.locker.Obtain(ctx, key, l.ttl, l.options)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

func (l *bsmLocker) Close() error { return l.client.Close() }
