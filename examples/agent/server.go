package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// keep is when a history expires that nothing could remove, because the program was killed.
const keep = time.Hour

// patience is how long a server may take to remove what a run wrote.
const patience = 5 * time.Second

// The log of go-redis would say on stderr what its calls return as well. It has no lock of its own, so
// it is switched off before the first client.
func init() { logging.Disable() }

// server has the locks and the histories of the runs. Locker and store share its client, so the store
// knows that the lock is on its own server, and a Save takes one request less.
type server struct {
	run  string        // begins each key on Redis, and is the schema on PostgreSQL
	pool *pgxpool.Pool // nil: Redis
	redis.UniversalClient
}

// open connects to nothing yet.
func open(url, run string) (*server, error) {
	if strings.HasPrefix(url, "postgres") {
		pool, err := pgxpool.New(context.Background(), url)
		return &server{run: run, pool: pool}, err
	}
	client, err := redislock.ParseURL(url)
	return &server{run: run, UniversalClient: client}, err
}

// prepare makes the server ready, once for all instances.
func (s *server) prepare(ctx context.Context) error {
	if s.pool == nil {
		if err := s.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("no answer from Redis: %w", err)
		}
		return nil
	}
	err := pglock.Migrate(ctx, s.pool, &pglock.Options{Schema: s.run})
	if err == nil {
		err = pgstore.Migrate(ctx, s.pool, &pgstore.Options{Schema: s.run})
	}
	if err == nil {
		_, err = s.pool.Exec(ctx, "CREATE TABLE "+s.messages()+
			" (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, list text, message bytea)")
	}
	if err != nil {
		return fmt.Errorf("prepare a schema in PostgreSQL: %w", err)
	}
	return nil
}

func (s *server) messages() string { return s.run + ".messages" }

func (s *server) locker(ctx context.Context, opts distlock.Options) (*distlock.Locker, error) {
	if s.pool != nil {
		return pglock.New(ctx, s.pool, &pglock.Options{Options: opts, Schema: s.run})
	}
	opts.Namespace = s.run
	return redislock.New(s.UniversalClient, &opts)
}

// store is the session store of the run with whole turns.
func (s *server) store() (*history.Store, error) {
	codec := sessionstore.JSON[history.Message]{}
	if s.pool != nil {
		return pgstore.New(s.pool, lockedmemory.SessionKey, codec, &pgstore.Options{Schema: s.run})
	}
	return redisstore.New(s.UniversalClient, lockedmemory.SessionKey, codec,
		&sessionstore.Retention{Namespace: s.run + ":session", IdleTTL: keep, RememberIDs: keep}, nil)
}

// remove removes all that the runs wrote.
func (s *server) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.pool != nil {
		_, err := s.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+s.run+" CASCADE")
		return err
	}
	// One key at a time: in a Cluster, keys of one command must share a slot.
	from := func(ctx context.Context, node redis.Cmdable) error {
		keys := node.Scan(ctx, 0, s.run+":*", 1000).Iterator()
		for keys.Next(ctx) {
			if err := s.Del(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		return keys.Err()
	}
	if cluster, ok := s.UniversalClient.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return from(ctx, node) })
	}
	return from(ctx, s)
}

func (s *server) close() {
	if s.pool != nil {
		s.pool.Close()
		return
	}
	_ = s.Close()
}
