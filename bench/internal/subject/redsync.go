package subject

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	peer "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncPause is the longest pause of its default delay, 50 to 250 ms at random.
const redsyncPause = 250 * time.Millisecond

// redsyncLocker has its defaults, on one node or several. But it does not give up after 32 tries, because the
// other subjects do not.
type redsyncLocker struct {
	sync    *redsync.Redsync
	clients []*redis.Client
	options []redsync.Option
}

func openRedsync(s Setup, options ...redsync.Option) (Locker, error) {
	l := &redsyncLocker{
		clients: s.clients(),
		options: append(options, redsync.WithExpiry(s.TTL), redsync.WithTries(math.MaxInt)),
	}
	var pools []peer.Pool
	for _, client := range l.clients {
		pools = append(pools, goredis.NewPool(client))
	}
	l.sync = redsync.New(pools...)
	return l, nil
}

func (l *redsyncLocker) Acquire(ctx context.Context, key string) (Held, error) {
	mutex := l.sync.NewMutex(key, l.options...)
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{mutex}, nil
}

// TryAcquire implements Trier.
func (l *redsyncLocker) TryAcquire(ctx context.Context, key string) (Held, error) {
	mutex := l.sync.NewMutex(key, l.options...)
	err := mutex.TryLockContext(ctx)
	if err == nil {
		return redsyncHeld{mutex}, nil
	}
	// Nodes that other contenders have taken are no fault.
	var node *redsync.ErrNodeTaken
	var nodes *redsync.ErrTaken
	if errors.As(err, &node) || errors.As(err, &nodes) {
		err = nil
	}
	return nil, err
}

func (l *redsyncLocker) Close() (err error) {
	for _, client := range l.clients {
		err = errors.Join(err, client.Close())
	}
	return err
}

type redsyncHeld struct{ mutex *redsync.Mutex }

func (h redsyncHeld) Release(ctx context.Context) error {
	if ok, err := h.mutex.UnlockContext(ctx); err != nil || !ok {
		return errors.Join(errors.New("redsync: not unlocked"), err)
	}
	return nil
}
