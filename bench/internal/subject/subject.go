// Package subject holds the compared locks: this library, its peers, and the barest possible lock,
// each behind the same two methods and set up as its own documentation advises.
//
// Each of them that uses go-redis gets a client with the same options: its defaults, and
// ContextTimeoutEnabled.
package subject

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/bench/internal/wire"
)

// The names of the subjects.
const (
	Ours        = "belugalock"
	Bsm         = "bsm/redislock"
	BsmEager    = "bsm/redislock, 1 ms"
	Redsync     = "redsync"
	Rueidislock = "rueidislock"
	Raw         = "raw commands"
	Ideal       = "no lock"
)

// Locker is a subject at work.
type Locker interface {
	// Acquire waits for the lock until ctx ends. The ctx has no deadline, and in-flight commands
	// outlive it.
	Acquire(ctx context.Context, key string) (Held, error)
	// Close ends what belongs to the Locker, its client included.
	Close() error
}

// Held is a lock that is held. Many libraries' types have this method, so no measurement pays for a
// wrapper.
type Held interface {
	Release(ctx context.Context) error
}

// Trier is a Locker that can try once.
type Trier interface {
	Locker
	// TryAcquire returns nil if another holds the lock, or may get it.
	TryAcquire(ctx context.Context, key string) (Held, error)
}

// Setup says how to open a subject.
type Setup struct {
	// Addr is that of Redis, or those of several nodes with commas between, or the URL of PostgreSQL.
	Addr string
	TTL  time.Duration
	// Commands counts what the subject's connections send. Nil: nothing is put between it and its
	// connections.
	Commands *wire.Counter
	// delay is the longest time by which each request is delayed, at random.
	delay time.Duration
}

var openers = map[string]func(Setup) (Locker, error){
	Ours:             openOurs,
	Bsm:              func(s Setup) (Locker, error) { return openBsm(s, bsmRetry) },
	BsmEager:         func(s Setup) (Locker, error) { return openBsm(s, bsmEagerRetry) },
	Redsync:          func(s Setup) (Locker, error) { return openRedsync(s) },
	Rueidislock:      openRueidislock,
	Raw:              openRaw,
	OursPostgres:     func(s Setup) (Locker, error) { return newOursPostgres(s) },
	Updates:          func(s Setup) (Locker, error) { return openUpdates(s, false) },
	UpdatesUnflushed: func(s Setup) (Locker, error) { return openUpdates(s, true) },
	Cirello:          openCirello,
	Allisson:         openAllisson,
	OursQuorum:       openOursQuorum,
	OursOneDead:      openOursQuorum,
	OursOneHung:      openOursQuorum,
	RedsyncQuorum:    func(s Setup) (Locker, error) { return openRedsync(s) },
	OursFar:          toFar(openOursQuorum),
	RedsyncFar:       toFar(func(s Setup) (Locker, error) { return openRedsync(s) }),
	Unobserved:       func(s Setup) (Locker, error) { return openObserved(s, nil) },
	TracingOff:       openTracingOff,
	TracingOn:        openTracingOn,
	TracingSync:      openTracingSync,
	Woken:            openWoken,
	RedsyncFast:      func(s Setup) (Locker, error) { return openRedsync(s, redsync.WithFailFast(true)) },
	Ideal:            func(Setup) (Locker, error) { return noLock{}, nil },
}

// Open opens the subject of that name.
func Open(name string, s Setup) (Locker, error) {
	open, ok := openers[name]
	if !ok {
		return nil, fmt.Errorf("no subject is called %q", name)
	}
	l, err := open(s)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return l, nil
}

// Free returns the subjects for a free lock: one that never waits does not care how often it would
// retry.
func Free() []string { return []string{Ours, Bsm, Redsync, Rueidislock, Raw} }

// Contended returns the subjects that can wait for a lock.
func Contended() []string { return []string{Ours, Bsm, BsmEager, Redsync, Rueidislock} }

// Peers returns those of the names that are other locking libraries.
func Peers(names []string) (peers []string) {
	for _, n := range names {
		if n != Ours && n != Raw && n != Ideal {
			peers = append(peers, n)
		}
	}
	return peers
}

// Pause returns the subject's longest fixed pause between two tries, 0 if it has none. A scenario
// that looks at a waiter should choose a random moment of that pause. Otherwise it always meets the
// same part of it.
func Pause(name string) time.Duration {
	switch name {
	case Bsm:
		return bsmRetry
	case BsmEager:
		return bsmEagerRetry
	case Redsync:
		return redsyncPause
	default:
		return 0
	}
}

func (s Setup) client() *redis.Client { return s.clients()[0] }

// clients returns a client for each address.
func (s Setup) clients() (clients []*redis.Client) {
	for addr := range strings.SplitSeq(s.Addr, ",") {
		options := &redis.Options{Addr: addr, ContextTimeoutEnabled: true}
		if s.Commands != nil {
			options.Dialer = s.Commands.Dial
		}
		if s.delay > 0 {
			options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return farConn{conn, s.delay}, err
			}
		}
		clients = append(clients, redis.NewClient(options))
	}
	return clients
}

// noLock is what remains of a measurement without a lock.
type noLock struct{}

func (noLock) Acquire(ctx context.Context, _ string) (Held, error) { return noLock{}, ctx.Err() }
func (noLock) Release(context.Context) error                       { return nil }
func (noLock) Close() error                                        { return nil }
