package subject

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// patience is the timeout of a try. The default is 20 ms, after which the library tries the next of
// several keys. Here is only one key: on a busy machine, a waiter with that timeout would wait for
// news about a free key.
const patience = time.Second

// openRueidislock opens the library with one key per lock instead of 2 of 3, as one server needs,
// and with NoLoopTracking, which needs Redis 7.0.5. Without it each holder wakes itself up and
// spins.
func openRueidislock(s Setup) (Locker, error) {
	client := rueidis.ClientOption{InitAddress: []string{s.Addr}}
	if s.Commands != nil {
		client.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.Commands.Dial(ctx, "tcp", addr)
		}
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   client,
		KeyValidity:    s.TTL,
		KeyMajority:    1,
		TryNextAfter:   patience,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return rueidisLocker{l}, nil
}

type rueidisLocker struct{ locker rueidislock.Locker }

func (l rueidisLocker) Acquire(ctx context.Context, key string) (Held, error) {
	_, cancel, err := l.locker.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return rueidisHeld(cancel), nil
}

func (l rueidisLocker) Close() error {
	l.locker.Close()
	return nil
}

// rueidisHeld ends a lock. The library has no other result of that than its end.
type rueidisHeld context.CancelFunc

func (cancel rueidisHeld) Release(context.Context) error {
	cancel()
	return nil
}
