package subject

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// bsm/redislock retries only if its caller says how often. Its README does so every 100 ms. With 1 ms
// its waiters are as quick as possible, and the price shows in the commands.
const (
	bsmRetry      = 100 * time.Millisecond
	bsmEagerRetry = time.Millisecond
)

func openBsm(s *Setup, addr string, retry time.Duration) (Locker, error) {
	locker, options := bsm.New(s.client(addr)), &bsm.Options{RetryStrategy: bsm.LinearBackoff(retry)}
	return func(ctx context.Context, key string) (Held, error) {
		return locker.Obtain(ctx, key, TTL, options)
	}, nil
}

// openRedsync opens redsync with its defaults, on one node or several. But it does not give up after
// 32 tries, because the other subjects do not.
func openRedsync(s *Setup, addrs string) (Locker, error) {
	var pools []redis.Pool
	for addr := range strings.SplitSeq(addrs, ",") {
		pools = append(pools, goredis.NewPool(s.client(addr)))
	}
	locker := redsync.New(pools...)
	return func(ctx context.Context, key string) (Held, error) {
		mutex := locker.NewMutex(key, redsync.WithExpiry(TTL), redsync.WithTries(math.MaxInt))
		err := mutex.LockContext(ctx)
		return heldFunc(func(ctx context.Context) error {
			ok, err := mutex.UnlockContext(ctx)
			if err == nil && !ok {
				err = errors.New("redsync: not unlocked")
			}
			return err
		}), err
	}, nil
}

// patience is the timeout of a try. The default is 20 ms, after which rueidislock tries the next of
// several keys. Here is only one key: on a busy machine, a waiter with that timeout would wait for
// news about a free key.
const patience = time.Second

// openRueidislock opens the library with one key per lock instead of 2 of 3, as one server needs,
// and with NoLoopTracking, which needs Redis 7.0.5. Without it each holder wakes itself up and
// spins.
func openRueidislock(s *Setup, addr string) (Locker, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:    TTL,
		KeyMajority:    1,
		TryNextAfter:   patience,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	s.onClose(locker.Close)
	return func(ctx context.Context, key string) (Held, error) {
		_, cancel, err := locker.WithContext(ctx, key)
		return heldFunc(func(context.Context) error {
			cancel() // the library has no other result of a release
			return nil
		}), err
	}, nil
}

// deleteIfEqual is what a lock without fences, renewal and idempotence needs to release.
var deleteIfEqual = goredislib.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

// openRaw opens the barest lock there is: SET NX PX and a script that compares and deletes. It cannot
// wait.
func openRaw(s *Setup, addr string) (Locker, error) {
	client := s.client(addr)
	return func(ctx context.Context, key string) (Held, error) {
		ok, err := client.SetNX(ctx, key, "owner", TTL).Result()
		if err == nil && !ok {
			err = fmt.Errorf("raw: %s is held", key)
		}
		return heldFunc(func(ctx context.Context) error {
			deleted, err := deleteIfEqual.Run(ctx, client, []string{key}, "owner").Int()
			if err == nil && deleted == 0 {
				err = errors.New("raw: the lock is not held any more")
			}
			return err
		}), err
	}, nil
}
