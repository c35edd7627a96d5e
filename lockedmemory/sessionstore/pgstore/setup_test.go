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

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config := returned(pgxpool.ParseConfig(url))(t)
	config.MaxConns = 16
	pool := returned(pgxpool.NewWithConfig(context.Background(), config))(t)
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

func newRig(t testing.TB, keep ...storedriver.Retention) *rig {
	t.Helper()
	r := rigOf(t, servers.SharedPostgres(t).NewDatabase(t))
	if len(keep) > 0 {
		r.Driver = returned(pgstore.NewDriver(r.pool, &pgstore.Options{Retention: keep[0]}))(t)
	}
	return r
}

func rigOf(t testing.TB, db *servers.PostgresDatabase) *rig {
	t.Helper()
	pool := connect(t, db.URL())
	must(t, pglock.Migrate(context.Background(), pool, nil))
	must(t, pgstore.Migrate(context.Background(), pool, nil))
	return &rig{t, returned(pgstore.NewDriver(pool, nil))(t), db, pool, time.Now().UnixMicro()}
}

// reconnects makes the driver anew, over connections with the present settings of the database.
func (r *rig) reconnects() {
	r.Helper()
	r.pool = connect(r, r.db.URL())
	r.Driver = returned(pgstore.NewDriver(r.pool, nil))(r)
}

// locked locks the rows of a table in another transaction, until unlock.
func (r *rig) locked(table string) (unlock func()) {
	r.Helper()
	tx := returned(connect(r, r.db.URL()).Begin(r.Context()))(r)
	r.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	returned(tx.Exec(r.Context(), "SELECT FROM belugalock."+table+" FOR UPDATE"))(r)
	return func() { must(r, tx.Rollback(r.Context())) }
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
	c.IDs, c.Digest = []string{id}, [16]byte(c.Messages[0])
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
	if err != nil {
		r.Errorf("Read: %v", err)
	}
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
