package subject

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncPause is the longest pause of its default delay, 50 to 250 ms at random.
const redsyncPause = 250 * time.Millisecond

// redsyncLocker has one node, and its defaults besides: but it does not give up after 32 tries, as the others do not.
type redsyncLocker struct {
	sync   *redsync.Redsync
	client *redis.Client
	ttl    time.Duration
}

func openRedsync(s Setup) (Locker, error) {
	client := s.client()
	return &redsyncLocker{redsync.New(goredis.NewPool(client)), client, s.TTL}, nil
}

func (l *redsyncLocker) Acquire(ctx context.Context, key string) (Held, error) {
	mutex := l.sync.NewMutex(key, redsync.WithExpiry(l.ttl), redsync.WithTries(math.MaxInt))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{mutex}, nil
}

func (l *redsyncLocker) Close() error { return l.client.Close() }

type redsyncHeld struct{ mutex *redsync.Mutex }

func (h redsyncHeld) Release(ctx context.Context) error {
	if ok, err := h.mutex.UnlockContext(ctx); err != nil || !ok {
		return errors.Join(errors.New("redsync: not unlocked"), err)
	}
	return nil
}
