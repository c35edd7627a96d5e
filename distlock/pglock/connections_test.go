package pglock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
)

// A NAT or a load balancer drops the state of old connections, and passes new ones. pgx waits for
// 15 s for the peer of an old connection.
func TestDriver_N_silentConnection_isReplaced(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	proxy, url := proxied(t, db)
	// Each request of an unnamed statement has its text.
	d := drivers(url + "&default_query_exec_mode=cache_describe")(t)
	ctx := context.Background()
	mustAcquire(t, d, acquire(owner1, time.Minute))
	// The listener takes one of the two connections that no call shares. Renewals have the other one.
	_, stop, err := d.(driver.Listener).Listen(ctx, name, owner2)
	must(t, err)
	defer stop()
	extend := func(ctx context.Context) error {
		reply := d.Extend(ctx, []driver.ExtendRequest{{Name: name, Owner: owner1, TTL: time.Minute}})[0]
		if reply.Err == nil && !reply.Held {
			t.Error("the lease is not held")
		}
		return reply.Err
	}
	inspect := func(ctx context.Context) error {
		_, err := d.Inspect(ctx, name)
		return err
	}
	for text, call := range map[string]struct {
		do    func(context.Context) error
		conns int // for these calls
	}{
		"extend_v1": {extend, 1}, "inspect_v1": {inspect, 2}, "-- ping": {extend, 1},
	} {
		if text == "-- ping" {
			must(t, extend(ctx))
			time.Sleep(1100 * time.Millisecond) // the driver pings a connection that was idle for 1 s
		}
		held := proxy.HoldRequests(faultnet.First(call.conns, faultnet.Containing(text)))
		var calls sync.WaitGroup
		for range call.conns {
			calls.Go(func() {
				short, cancel := context.WithTimeout(ctx, time.Second) // for a new connection on a busy machine, too
				defer cancel()
				if call.do(short) == nil {
					t.Errorf("%s: a held request was answered", text)
				}
			})
		}
		calls.Wait()
		held.Wait(call.conns)
		long, cancel := context.WithTimeout(ctx, 5*time.Second)
		if err := call.do(long); err != nil {
			t.Errorf("%s: no connection in the place of a silent one: %v", text, err)
		}
		cancel()
		held.Release()
	}
}

// A server accepts connections, and does not answer their first question. When it answers again, new
// connections come in the place of those.
func TestDriver_L_silentCheck_isReplaced(t *testing.T) {
	t.Parallel()
	proxy, url := proxied(t, migrated(t))
	d := openDriver(t, url)
	const conns = 2 // for calls
	held := proxy.HoldRequests(faultnet.First(conns, faultnet.Containing("version_v1")))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	for range conns {
		calls.Go(func() {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			if _, err := d.Inspect(short, name); err == nil {
				t.Error("a held request was answered")
			}
		})
	}
	calls.Wait()
	held.Wait(conns)
	if _, err := d.Inspect(ctx, name); err != nil {
		t.Errorf("no connection in the place of a silent one: %v", err)
	}
	held.Release()
}

// In this database, each statement at a strict isolation has a conflict, and so has its repetition.
func TestDriver_L_strictDefault_noConflict(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	do(t, db, "ALTER DATABASE "+db.Name()+" SET default_transaction_isolation = 'serializable'")
	do(t, db, `CREATE FUNCTION public.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE SQLSTATE '40001'; END IF;
		RETURN NEW;
	END $$`)
	do(t, db, "CREATE TRIGGER conflict BEFORE INSERT OR UPDATE ON belugalock.lease FOR EACH ROW EXECUTE FUNCTION public.conflict()")
	d := drivers(db.URL())(t)
	if grant, err := d.Acquire(context.Background(), acquire(owner1, time.Minute)); err != nil || grant.Outcome != driver.Granted {
		t.Fatalf("%+v, %v", grant, err)
	}
	if owner := do(t, db, "SELECT owner FROM belugalock.lease"); owner != owner1 {
		t.Errorf("%q holds the name", owner)
	}
}

// At a strict isolation, a call is a transaction of several statements. The answer to its COMMIT is lost.
func TestDriver_S1_commitLost_isUnknown(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	do(t, db, "ALTER DATABASE "+db.Name()+" SET default_transaction_isolation = 'serializable'")
	proxy, url := proxied(t, db)
	d := drivers(url)(t)
	dropped := proxy.DropReplies(faultnet.Containing("commit\x00"))
	defer dropped.Stop()
	if _, err := d.Acquire(context.Background(), acquire(owner1, time.Minute)); err == nil || !driver.MayHaveEffect(err) {
		t.Errorf("%v, want an unknown outcome", err)
	}
	if owner := do(t, db, "SELECT owner FROM belugalock.lease"); owner != owner1 {
		t.Errorf("%q holds the name", owner)
	}
}

// After each call, a hook of the application's pool removes the statements of the connection.
func TestDriver_C_statementsForgotten_callsWork(t *testing.T) {
	t.Parallel()
	var named atomic.Bool
	d := newDriver(t, newPool(t, migrated(t).URL(), func(config *pgxpool.Config) {
		config.MaxConns = 1
		config.AfterRelease = func(c *pgx.Conn) bool {
			var statements int
			_ = c.QueryRow(context.Background(), "SELECT count(*) FROM pg_prepared_statements", pgx.QueryExecModeExec).Scan(&statements)
			named.Store(named.Load() || statements > 0)
			_, _ = c.Exec(context.Background(), "DEALLOCATE ALL", pgx.QueryExecModeExec)
			return true
		}
	}))
	for range 8 { // more than there are connections
		must(t, second(d.Inspect(context.Background(), name)))
	}
	if !named.Load() {
		t.Error("no statement had a name, so the server parsed each call")
	}
}

// The server ends all connections of the driver. The next call of each kind succeeds, on a new one.
func TestDriver_C_connectionEndedByServer_callsWork(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	d := drivers(db.URL())(t)
	ctx := context.Background()
	calls := []struct {
		name string
		do   func() error
	}{
		{"Acquire", func() error { _, err := d.Acquire(ctx, acquire(owner1, time.Minute)); return err }},
		{"Extend", func() error {
			return d.Extend(ctx, []driver.ExtendRequest{{Name: name, Owner: owner1, TTL: time.Minute}})[0].Err
		}},
		{"Raise", func() error { _, err := d.Raise(ctx, driver.RaiseRequest{Name: name, Owner: owner1}); return err }},
		{"Ask", func() error { _, err := d.(driver.Asker).Ask(ctx, driver.AskRequest{Name: name}); return err }},
		{"Inspect", func() error { _, err := d.Inspect(ctx, name); return err }},
		{"Release", func() error { _, err := d.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner1}); return err }},
	}
	for _, call := range calls {
		for _, warm := range calls[:3] {
			must(t, warm.do())
		}
		if ended := do(t, db, `SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`); ended == "0" {
			t.Fatal("no connection was ended")
		}
		if err := call.do(); err != nil {
			t.Errorf("%s: %v", call.name, err)
		}
	}
}
