package pgstore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// A pool without caches works through a pooler that sends each transaction to another server
// connection.
func TestDriver_O_withoutCaches_pgBouncer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bouncer := servers.StartPgBouncer(t, servers.SharedPostgres(t), "transaction")
	config := returned(pgxpool.ParseConfig(bouncer.URL(r.db.Name())))(t)
	config.MaxConns = 8
	config.ConnConfig.StatementCacheCapacity, config.ConnConfig.DescriptionCacheCapacity = 0, 0
	pool := returned(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	r.Driver = returned(pgstore.NewDriver(pool, nil))(t)
	var sessions sync.WaitGroup
	for i := range 8 {
		session := fmt.Sprint("session", i)
		sessions.Go(func() {
			for n := range 20 {
				r.saves(session, r.fence, int64(n+1), session)
				if got := r.texts(session); len(got) != n+1 || got[n] != session {
					r.Errorf("%d exchanges after Save %d of %s", len(got), n+1, session)
					return
				}
			}
			r.is(storedriver.Done)(r.Clear(r.Context(), storedriver.Clear{Write: r.write(session, r.fence, 21)}))
		})
	}
	sessions.Wait()
}
