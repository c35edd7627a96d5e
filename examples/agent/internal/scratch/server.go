package scratch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
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

// server has the locks of a run, its histories, or both. Locker and store share its client, so the store
// knows that the lock is on its own server, and a Save takes one request less.
type server struct {
	run          string                  // begins each key on Redis, and is the schema on PostgreSQL
	pool         *pgxpool.Pool           // nil: Redis
	nodes        []redis.UniversalClient // of a quorum; otherwise one
	restartDelay time.Duration           // of a quorum
}

func open(url, run string) (*server, error) {
	switch {
	case is(url, pglock.Schemes):
		pool, err := openPool(url)
		return &server{run: strings.ToLower(strings.ReplaceAll(run, "-", "_")), pool: pool}, err
	case IsQuorum(url):
		nodes, restartDelay, err := redlock.ParseURL(url)
		if err != nil {
			return nil, err
		}
		s := &server{run: run, nodes: nodes, restartDelay: restartDelay}
		driver, err := redlock.NewDriver(nodes, &redlock.Options{RestartDelay: restartDelay}) // checks the number of nodes
		if err != nil {
			s.close()
			return nil, err
		}
		return s, driver.Close()
	}
	client, err := redislock.ParseURL(url)
	return &server{run: run, nodes: []redis.UniversalClient{client}}, err
}

func openPool(url string) (*pgxpool.Pool, error) {
	locks, err := pglock.OpenDriver(url) // its errors show no password
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err = errors.Join(err, locks.Close()); err != nil {
		return nil, err
	}
	delete(config.ConnConfig.RuntimeParams, "schema")              // the run has one of its own
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // works through every pooler
	return pgxpool.NewWithConfig(context.Background(), config)
}

func (s *server) prepare(ctx context.Context) error {
	if s.pool == nil {
		return s.quorum(func(node redis.UniversalClient) error {
			if err := node.Ping(ctx).Err(); err != nil {
				return fmt.Errorf("no answer from Redis: %w", err)
			}
			return nil
		})
	}
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("no answer from PostgreSQL: %w", err)
	}
	err := pglock.Migrate(ctx, s.pool, &pglock.Options{Schema: s.run})
	if err == nil {
		err = pgstore.Migrate(ctx, s.pool, &pgstore.Options{Schema: s.run})
	}
	if err == nil {
		_, err = s.pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.messages()+
			" (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, list text, message bytea)")
	}
	if err != nil {
		return fmt.Errorf("prepare a schema: %w", err)
	}
	return nil
}

// quorum returns nil if a call succeeds at the one node, or at a quorum of nodes.
func (s *server) quorum(call func(redis.UniversalClient) error) error {
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i, node := range s.nodes {
		all.Go(func() { errs[i] = call(node) })
	}
	all.Wait()
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if 2*failed < len(s.nodes) {
		return nil
	}
	return errors.Join(errs...)
}

func (s *server) locker(ctx context.Context, opts distlock.Options) (*distlock.Locker, error) {
	if s.pool != nil {
		return pglock.New(ctx, s.pool, &pglock.Options{Options: opts, Schema: s.run})
	}
	opts.Namespace = s.run
	if len(s.nodes) > 1 {
		return redlock.New(s.nodes, &redlock.Options{Options: opts, RestartDelay: s.restartDelay})
	}
	return redislock.New(s.nodes[0], &opts)
}

func (s *server) store(key lockedmemory.KeyFunc) (*history.Store, error) {
	codec := sessionstore.JSON[history.Message]{}
	if s.pool != nil {
		return pgstore.New(s.pool, key, codec, &pgstore.Options{Schema: s.run})
	}
	return redisstore.New(s.nodes[0], key, codec,
		&sessionstore.Retention{Namespace: s.run + ":session", IdleTTL: keep, RememberIDs: keep}, nil)
}

// list is the messages of one conversation: a list of Redis, or rows of PostgreSQL.
type list struct {
	*server
	name string
}

func (s *server) messages() string { return pgx.Identifier{s.run, "messages"}.Sanitize() }

func (l list) Append(ctx context.Context, message []byte) error {
	if l.pool != nil {
		_, err := l.pool.Exec(ctx, "INSERT INTO "+l.messages()+" (list, message) VALUES ($1, $2)", l.name, message)
		return err
	}
	pipe := l.nodes[0].Pipeline()
	pipe.RPush(ctx, l.run+":list:"+l.name, message)
	pipe.Expire(ctx, l.run+":list:"+l.name, keep)
	_, err := pipe.Exec(ctx)
	return err
}

func (l list) All(ctx context.Context) (messages [][]byte, err error) {
	if l.pool == nil {
		err = l.nodes[0].LRange(ctx, l.run+":list:"+l.name, 0, -1).ScanSlice(&messages)
		return messages, err
	}
	rows, err := l.pool.Query(ctx, "SELECT message FROM "+l.messages()+" WHERE list = $1 ORDER BY number", l.name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[[]byte])
}

// remove leaves the keys of a minority of a quorum that does not answer. They expire after a day.
func (s *server) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.pool != nil {
		_, err := s.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{s.run}.Sanitize()+" CASCADE")
		return err
	}
	return s.quorum(func(client redis.UniversalClient) error {
		// One key at a time: in a Cluster, keys of one command must share a slot.
		from := func(ctx context.Context, node redis.Cmdable) error {
			keys := node.Scan(ctx, 0, s.run+":*", 1000).Iterator()
			for keys.Next(ctx) {
				if err := client.Del(ctx, keys.Val()).Err(); err != nil {
					return err
				}
			}
			return keys.Err()
		}
		if cluster, ok := client.(*redis.ClusterClient); ok {
			return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return from(ctx, node) })
		}
		return from(ctx, client)
	})
}

func (s *server) close() {
	if s.pool != nil {
		s.pool.Close()
	}
	for _, node := range s.nodes {
		_ = node.Close()
	}
}
