// Command unlock counts in Redis under a lock that is taken in the style of older code: Lock returns a
// function that unlocks. The client may be of one node, of Sentinels or of a Cluster.
//
//	go run ./examples/recipes/unlock -lock redis://localhost:6379
//	go run ./examples/recipes/unlock -lock redis+cluster://localhost:7000,localhost:7001
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
)

func main() {
	lock := flag.String("lock", cmp.Or(os.Getenv("LOCK_URL"), "redis://localhost:6379"), "URL of the Redis")
	counts := flag.Int("counts", 100, "how often to count")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := redislock.ParseURL(*lock) // or redis.NewClient, or redis.NewClusterClient
	if err == nil {
		err = errors.Join(run(ctx, client, *counts), client.Close())
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, client redis.UniversalClient, counts int) (err error) {
	locks, err := NewLocks(client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	for range counts {
		if err := count(ctx, client, locks); err != nil {
			return err
		}
	}
	log.Printf("counted %d times", counts)
	return nil
}

func count(ctx context.Context, client redis.UniversalClient, locks *Locks) (err error) {
	ctx, unlock, err := locks.Lock(ctx, "counter", 10*time.Second)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	n, err := client.Get(ctx, "visits").Int() // two steps, so it needs the lock
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return client.Set(ctx, "visits", n+1, 0).Err()
}

// Locks is the adapter. One type serves both kinds of client.
type Locks struct{ locker *distlock.Locker }

// NewLocks takes a *redis.Client or a *redis.ClusterClient. The caller closes the client after the Locks.
func NewLocks(client redis.UniversalClient) (*Locks, error) {
	locker, err := redislock.New(client, &distlock.Options{Namespace: "visits"})
	return &Locks{locker}, err
}

// Lock waits for the lock. Work under the lock uses the returned context, which ends with ctx, or when
// the lock is lost. Older code has no such context and goes on without the lock.
//
// The lock is renewed until unlock, so ttl need not cover the work. The function unlock releases only
// the lock of this call, works after the end of ctx, and may be called twice. Its error says that the
// lock was lost.
func (l *Locks) Lock(ctx context.Context, name string, ttl time.Duration) (
	held context.Context, unlock func() error, err error) {
	lease, err := l.locker.Acquire(ctx, name, distlock.WithTTL(ttl))
	if err != nil {
		return nil, nil, err
	}
	held, cancel := context.WithCancelCause(lease.Context())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return held, func() error { stop(); return lease.Release(ctx) }, nil
}

// Close releases all locks, and takes seconds at most.
func (l *Locks) Close() error { return l.locker.Close(context.Background()) }
