package subject

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
)

// options are those of this library with everything on: renewal, notice of loss, and an Observer,
// because production has one.
var options = distlock.Options{
	TTL:      TTL,
	Wait:     -1, // as the others wait
	Observer: observer{},
	Logger:   slog.New(slog.DiscardHandler), // a Locker that is closed under its waiters says so
}

type observer struct{}

func (observer) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }
func (observer) End(context.Context, *distlock.Operation)                         {}

// acquires returns a Locker of this library as the subjects are.
func acquires(locker *distlock.Locker, err error) (Locker, error) {
	return func(ctx context.Context, key string) (Held, error) { return locker.Acquire(ctx, key) }, err
}

// ours notes to close a Locker of this library.
func (s *Setup) ours(locker *distlock.Locker, err error) (*distlock.Locker, error) {
	if err == nil {
		s.onClose(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = locker.Close(ctx)
		})
	}
	return locker, err
}

func (s *Setup) onRedis(client *redis.Client) (*distlock.Locker, error) {
	return s.ours(redislock.New(client, &options))
}

func (s *Setup) onPostgres(url string) (*distlock.Locker, *pgxpool.Pool, error) {
	pool, err := s.pool(url)
	if err != nil {
		return nil, nil, err
	}
	locker, err := s.ours(pglock.New(context.Background(), pool, &pglock.Options{Options: options}))
	return locker, pool, err
}

func openOurs(s *Setup, addr string) (Locker, error) { return acquires(s.onRedis(s.client(addr))) }

func openOursPostgres(s *Setup, url string) (Locker, error) {
	locker, _, err := s.onPostgres(url)
	return acquires(locker, err)
}

// openOursQuorum opens the nodes without a delay after a restart: their servers are new.
func openOursQuorum(s *Setup, addrs string) (Locker, error) {
	var nodes []redis.UniversalClient
	for addr := range strings.SplitSeq(addrs, ",") {
		nodes = append(nodes, s.client(addr))
	}
	return acquires(s.ours(redlock.New(nodes, &redlock.Options{RestartDelay: -1, Options: options})))
}
