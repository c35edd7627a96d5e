// Package subject holds the compared locks and session stores: this library, its peers, and the barest
// commands, each behind the same functions and set up as its own documentation advises.
//
// Each of them that uses go-redis gets a client with the same options: its defaults, and
// ContextTimeoutEnabled.
package subject

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
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

	// On PostgreSQL.
	OursPostgres = "belugalock, PostgreSQL"
	Allisson     = "allisson/go-pglock"
	Updates      = "two UPDATEs"

	// On five nodes.
	OursQuorum  = "belugalock, 5 nodes"
	OursOneDead = "belugalock, one node dead"
	OursOneHung = "belugalock, one node hung"
)

// Locker waits for the lock of a key until ctx ends. The ctx has no deadline, and in-flight commands
// outlive it.
type Locker func(ctx context.Context, key string) (Held, error)

// Held is a lock that is held. Many libraries' types have this method, so no measurement pays for a
// wrapper.
type Held interface {
	Release(ctx context.Context) error
}

type heldFunc func(ctx context.Context) error

func (release heldFunc) Release(ctx context.Context) error { return release(ctx) }

// TTL is that of all locks: none runs out while it is measured.
const TTL = 30 * time.Second

// Setup is what belongs to opened subjects.
type Setup struct{ closers []func() }

// Close ends what belongs to the subjects, their clients included. Every figure is known by then, so no
// error matters.
func (s *Setup) Close() {
	for _, closeIt := range slices.Backward(s.closers) {
		closeIt()
	}
}

func (s *Setup) onClose(closeIt func()) { s.closers = append(s.closers, closeIt) }

// The log of go-redis would name a killed server again and again. It has no lock of its own, so it
// is switched off before the first client.
func init() { logging.Disable() }

// Opener opens a subject. Its addr is that of Redis, or those of several nodes with commas between, or the
// URL of a database in PostgreSQL that PreparePostgres has prepared.
type Opener[T any] func(s *Setup, addr string) (T, error)

// Lockers are the compared locks by their names.
var Lockers = map[string]Opener[Locker]{
	Ours:         openOurs,
	Bsm:          func(s *Setup, addr string) (Locker, error) { return openBsm(s, addr, bsmRetry) },
	BsmEager:     func(s *Setup, addr string) (Locker, error) { return openBsm(s, addr, bsmEagerRetry) },
	Redsync:      openRedsync,
	Rueidislock:  openRueidislock,
	Raw:          openRaw,
	OursPostgres: openOursPostgres,
	Updates:      openUpdates,
	Allisson:     openAllisson,
	OursQuorum:   openOursQuorum,
	OursOneDead:  openOursQuorum,
	OursOneHung:  openOursQuorum,
	Ideal:        func(*Setup, string) (Locker, error) { return noLock, nil },
}

// Free returns the subjects for a free lock: one that never waits does not care how often it would
// retry.
func Free() []string { return []string{Ours, Bsm, Redsync, Rueidislock, Raw} }

// Contended returns the subjects that can wait for a lock.
func Contended() []string { return []string{Ours, Bsm, BsmEager, Redsync, Rueidislock} }

// Sent are the commands that a subject on one Redis sends, as INFO commandstats names them. Redis also
// counts what scripts call, but none of these.
var Sent = map[string][]string{
	Ours: {"evalsha"}, Bsm: {"evalsha"}, BsmEager: {"evalsha"}, Redsync: {"set", "evalsha"}, Raw: {"set", "evalsha"},
	Rueidislock: {"client|caching", "evalsha"},
}

func (s *Setup) client(addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	s.onClose(func() { _ = client.Close() })
	return client
}

// noLock is what remains of a measurement without a lock.
func noLock(ctx context.Context, _ string) (Held, error) {
	return heldFunc(func(context.Context) error { return nil }), ctx.Err()
}
