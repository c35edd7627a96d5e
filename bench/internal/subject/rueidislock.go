package subject

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// patience is how long a try may take. The default is 20 ms, after which the next of several keys is tried. Here is no next: on a
// busy machine, a waiter that gave up so soon would wait for news about a key that is free.
const patience = time.Second

// openRueidislock opens the library with one key per lock, which is what one server calls for, in place of 2 of 3, and with
// NoLoopTracking, which needs Redis 7.0.5: without it each holder wakes itself up and spins.
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
