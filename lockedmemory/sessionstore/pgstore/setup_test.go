package pgstore_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests mostly wait for servers, so more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// migrated makes a database of the shared server with the tables of the locks and the store.
func migrated(t testing.TB) *servers.PostgresDatabase {
	t.Helper()
	db := servers.SharedPostgres(t).NewDatabase(t)
	migrate(t, db)
	return db
}

func migrate(t testing.TB, db *servers.PostgresDatabase) *pgxpool.Pool {
	t.Helper()
	pool := connect(t, db.URL())
	must(t, pglock.Migrate(context.Background(), pool, nil))
	must(t, pgstore.Migrate(context.Background(), pool, nil))
	return pool
}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	must(t, err)
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// returned is the value of a call that must succeed.
func returned[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return value
	}
}

// rig is a driver over a database of its own.
type rig struct {
	testing.TB
	storedriver.Driver
	db    *servers.PostgresDatabase
	pool  *pgxpool.Pool
	fence int64 // a token of this moment
}

func newRig(t testing.TB, keep storedriver.Retention) *rig {
	t.Helper()
	db := migrated(t)
	pool := connect(t, db.URL())
	d, err := pgstore.NewDriver(pool, &pgstore.Options{Retention: keep})
	must(t, err)
	return &rig{t, d, db, pool, time.Now().UnixMicro()}
}

// do sends SQL with the tables in its path.
func (r *rig) do(sql string) string {
	r.Helper()
	return returned(r.db.Do("SET search_path = belugalock; " + sql))(r)
}

// write is the n-th under a token. The first is the first access of its lease.
func (r *rig) write(session string, fence, n int64) storedriver.Write {
	return storedriver.Write{Access: storedriver.Access{Session: session, Fence: fence, FirstAccess: n == 1}, N: n,
		Op: fmt.Sprintf("%016x%016x", fence, n)}
}

// saves appends exchanges, and wants the outcome done.
func (r *rig) saves(session string, fence, from int64, texts ...string) {
	r.Helper()
	for i, text := range texts {
		r.is(storedriver.Done)(r.Append(r.Context(), storedriver.Append{Write: r.write(session, fence, from+int64(i)),
			Content: content(text)}))
	}
}

func content(text string) storedriver.Content {
	return storedriver.Content{Messages: [][]byte{[]byte(text)}}
}

// named gives a content an ID.
func named(c storedriver.Content, id string) storedriver.Content {
	c.ID, c.Digest = id, [16]byte(c.Messages[0])
	return c
}

// is checks a verdict.
func (r *rig) is(want storedriver.Outcome) func(storedriver.Verdict, error) {
	return func(v storedriver.Verdict, err error) {
		r.Helper()
		if err != nil || v.Outcome != want {
			r.Errorf("%+v, %v; want outcome %d", v, err, want)
		}
	}
}

// texts are the first messages of a session.
func (r *rig) texts(session string) (texts []string) {
	r.Helper()
	page, err := r.Read(r.Context(), storedriver.Read{Access: storedriver.Access{Session: session}, Limit: 1000})
	must(r, err)
	for _, e := range page.Entries {
		texts = append(texts, string(e.Messages[0]))
	}
	return texts
}

// shows is the first access of a lease that only reads.
func (r *rig) shows(session string, fence int64) (storedriver.Verdict, error) {
	a := r.write(session, fence, 1).Access
	page, err := r.Read(r.Context(), storedriver.Read{Access: a, Limit: 1})
	return page.Verdict, err
}
