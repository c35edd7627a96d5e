package pglock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
)

var takeovers = flag.Int("takeovers", 400, "how often TestFence_S2_takeovers takes a lease over")

// Holders are paused at some moment of a transaction, and the next holder works at the same time.
// Each transaction writes what it has read plus 1. The commits have rising tokens, and none is
// lost.
func TestFence_S2_takeovers(t *testing.T) {
	s := emptyScene(t)
	must(t, pglock.Migrate(t.Context(), s.pool, nil))
	s.open(newDriver(t, s.pool))
	const keys = 8
	s.do(`CREATE TABLE counter (key text PRIMARY KEY, n bigint NOT NULL, value bigint NOT NULL);
		CREATE TABLE log (key text, n bigint, value bigint, token bigint);
		ALTER DATABASE ` + s.database.Name() + ` SET synchronous_commit = off`)
	s.pool.Reset()
	var (
		wg              sync.WaitGroup
		passed, refused atomic.Int64
	)
	for k := range keys {
		key := fmt.Sprint("k", k)
		s.do("INSERT INTO counter VALUES ('" + key + "', 0, 0)")
		wg.Go(func() {
			holder := s.acquire(key)
			for range *takeovers / keys {
				holder = s.takeOverInside(holder, func(committed bool) {
					if committed {
						passed.Add(1)
					} else {
						refused.Add(1)
					}
				})
			}
			_ = holder.Release(context.Background())
		})
	}
	wg.Wait()
	t.Logf("%d takeovers: %d transactions of former holders committed before those of the next, %d were refused",
		*takeovers/keys*keys, passed.Load(), refused.Load())
	if passed.Load() == 0 || refused.Load() == 0 {
		t.Error("this tests nothing")
	}
	for what, query := range map[string]string{
		"stale commits": `SELECT count(*) FROM (
			SELECT token < lag(token) OVER (PARTITION BY key ORDER BY n) AS stale FROM log) AS l WHERE stale`,
		"lost updates": "SELECT count(*) FROM log WHERE value <> n",
		"lost commits": "SELECT sum(n) - (SELECT count(*) FROM log) FROM counter",
	} {
		if n := s.do(query); n != "0" {
			t.Errorf("%s: %s", what, n)
		}
	}
}

// takeOverInside takes a lease over while its holder is in a transaction, and returns the next
// lease.
func (s *scene) takeOverInside(holder *distlock.Lease, ended func(committed bool)) *distlock.Lease {
	var (
		next       *distlock.Lease
		moment     = rand.N(5)
		waits      = rand.N(2) == 0
		done       = make(chan error, 1)
		takenOver  bool
		takeOverAt = func(at int) {
			if at != moment {
				return
			}
			next, takenOver = s.takeOver(holder), true
			go func() { done <- s.increment(next, func(int) {}) }()
			if waits && at < 2 { // a later moment is after the fence, for which the next holder waits
				done <- <-done
			}
		}
	)
	err := s.increment(holder, takeOverAt)
	switch {
	case err == nil:
		ended(true)
	case errors.Is(err, distlock.ErrLost):
		ended(false)
	default:
		s.t.Errorf("a former holder: %v", err)
	}
	if !takenOver {
		s.t.Fatal("there was no takeover")
	}
	if err := <-done; err != nil {
		s.t.Errorf("the next holder: %v", err)
	}
	_ = holder.Release(s.t.Context())
	return next
}

// increment is a fenced transaction that calls at with the number of each of its steps.
func (s *scene) increment(lease *distlock.Lease, at func(step int)) error {
	at(0)
	return pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
		at(1)
		if err := pglock.Fence(s.t.Context(), tx, lease); err != nil {
			return err
		}
		at(2)
		var value, n int64
		err := tx.QueryRow(s.t.Context(), "SELECT value FROM counter WHERE key = $1", lease.Key()).Scan(&value)
		at(3)
		if err == nil {
			// The number shows the order of the commits, with or without a fence.
			err = tx.QueryRow(s.t.Context(), "UPDATE counter SET n = n + 1, value = $2 WHERE key = $1 RETURNING n",
				lease.Key(), value+1).Scan(&n)
		}
		if err == nil {
			_, err = tx.Exec(s.t.Context(), "INSERT INTO log VALUES ($1, $2, $3, $4)", lease.Key(), n, value+1, lease.Fence())
		}
		at(4)
		return err
	})
}
