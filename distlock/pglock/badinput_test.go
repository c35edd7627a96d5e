package pglock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	owner1 = "00000000000000000000000000000001"
	owner2 = "00000000000000000000000000000002"
	owner3 = "00000000000000000000000000000003"
)

var name = driver.Name{Namespace: "n", Key: "k"}

func acquire(owner string, ttl time.Duration) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Owner: owner, TTL: ttl}
}

// Not held is final, so no other outcome counts as not held.
func TestExtend_N_unknownOutcome_isAnError(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	do(t, db, "ALTER FUNCTION belugalock.extend_v1 RENAME TO extend_real")
	do(t, db, `CREATE FUNCTION belugalock.extend_v1(text[], text[], text[], bigint[], integer)
		RETURNS TABLE (i bigint, outcome text) LANGUAGE sql AS $$ SELECT 1::bigint, 'odd' $$`)
	d, err := pglock.OpenDriver(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	reply := d.Extend(t.Context(), []driver.ExtendRequest{{Name: name, Owner: owner1, TTL: time.Minute}})[0]
	if reply.Held || reply.Err == nil || !driver.MayHaveEffect(reply.Err) {
		t.Errorf("%+v, want an error", reply)
	}
}

// New fails with a typed error that shows what to do, and no part of the password.
func TestNew_C_badServer_typedError(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	url := grantedTo(t, db, "app")
	server, redis, web := servers.SharedPostgres(t), servers.StartRedis(t), httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	const noPostgres = "no PostgreSQL answers there with this sslmode: correct host, port or sslmode"
	empty := server.NewDatabase(t)
	ascii := strings.Replace(db.URL(), db.Name(), db.Name()+"ascii", 1)
	do(t, empty, "CREATE DATABASE "+db.Name()+"ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() { do(t, empty, "DROP DATABASE "+db.Name()+"ascii WITH (FORCE)") })
	for name, bad := range map[string]struct {
		url, schema, text string
		want              error
	}{
		"password": {strings.Replace(url, "secret", "secreT", 1), "", "28P01); check the user, the password and pg_hba.conf", distlock.ErrRefused},
		"database": {strings.Replace(url, "?", "x?", 1), "", "3D000); create the database, or correct its name", distlock.ErrRefused},
		"server":   {"postgres://app:secret@127.0.0.1:1/x", "", "connection refused; start PostgreSQL, or correct host and port", distlock.ErrUnavailable},
		"Redis":    {strings.Replace(url, server.Addr(), redis.Addr(), 1), "", noPostgres, distlock.ErrUnavailable},
		"HTTP":     {strings.Replace(url, server.Addr(), web.Listener.Addr().String(), 1), "", noPostgres, distlock.ErrUnavailable},
		"TLS":      {strings.Replace(url, "=disable", "=require", 1), "", noPostgres, distlock.ErrUnavailable},
		"schema":   {empty.URL(), "", "run pglock.Migrate", distlock.ErrRefused},
		"another":  {db.URL(), "locks", `"locks" is missing`, distlock.ErrRefused},
		"encoding": {ascii, "", "the encoding of the database is SQL_ASCII: use UTF8", distlock.ErrRefused},
		"name":     {db.URL(), "Locks", "lower-case letters", distlock.ErrInvalidOption},
		"system":   {db.URL(), "pg_locks", "pg_", distlock.ErrInvalidOption},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pglock.New(context.Background(), newPool(t, bad.url), &pglock.Options{Schema: bad.schema})
			if !errors.Is(err, bad.want) || !strings.Contains(err.Error(), bad.text) || strings.ContainsAny(err.Error(), "\n\t") ||
				strings.Contains(err.Error(), "secre") {
				t.Errorf("New: %v, want %v with %q in one line", err, bad.want, bad.text)
			}
			if name != "password" && name != "database" && name != "server" {
				return
			}
			_, err = pglock.NewSessionLock(context.Background(), newPool(t, bad.url))
			if !errors.Is(err, bad.want) || strings.Contains(err.Error(), "secre") {
				t.Errorf("NewSessionLock: %v, want %v", err, bad.want)
			}
		})
	}
	if _, err := pglock.New(context.Background(), nil, nil); !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("New without a pool: %v", err)
	}
	if _, err := pglock.New(context.Background(), newPool(t, url),
		&pglock.Options{Options: distlock.Options{TTL: 1}}); !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("New with a TTL of 1 ns: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := pglock.New(ctx, newPool(t, url), nil); !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("New with a context that has ended: %v", err)
	}
	if _, err := pglock.NewSessionLock(ctx, newPool(t, url)); !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("NewSessionLock with a context that has ended: %v", err)
	}
}

// A probe of a second learns why there is no connection.
func TestPing_C_refusedPort_showsCause(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://127.0.0.1:1/x", "postgres://127.0.0.1:1,127.0.0.1:2/x"} {
		d, err := pglock.OpenDriver(url)
		if err != nil {
			t.Fatal(err)
		}
		locker, err := distlock.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(context.Background())
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := locker.Ping(ctx); !errors.Is(err, distlock.ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Ping of %s: %v", url, err)
		}
		if _, err := locker.Acquire(ctx, "k"); !errors.Is(err, distlock.ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Acquire at %s: %v", url, err)
		}
	}
}

// A name is the same for all programs, whatever encoding their connections had.
func TestAcquire_S1_otherClientEncoding_excludes(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	do(t, db, "ALTER DATABASE "+db.Name()+" SET client_encoding = 'LATIN1'")
	utf8, latin1 := drivers(db.URL())(t), drivers(db.URL()+"&client_encoding=LATIN1")(t)
	req := acquire(owner1, time.Minute)
	req.Name.Key = "Zürich"
	if reply, err := utf8.Acquire(context.Background(), req); err != nil || reply.Outcome != driver.Granted {
		t.Fatalf("Acquire: %+v, %v", reply, err)
	}
	req.Owner = owner2
	if reply, err := latin1.Acquire(context.Background(), req); err != nil || reply.Outcome != driver.Busy {
		t.Errorf("Acquire of a held name with another encoding: %+v, %v", reply, err)
	}
}

// A call in a transaction that a hook has left open is not committed.
func TestAcquire_S1_hookBegins_isUnknown(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(migrated(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "BEGIN")
		return err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pglock.New(context.Background(), pool, nil); !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("New: %v, want ErrUnavailable", err)
	}
}

// A schema that an older program installed is refused; that of a newer program is used.
func TestNew_C_schemaVersion(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for version, want := range map[string]error{"0": distlock.ErrRefused, "1": nil, "2": nil} {
		do(t, db, "UPDATE belugalock.version SET version = "+version+" WHERE part = 'lock'")
		locker, err := pglock.New(context.Background(), newPool(t, db.URL()), nil)
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), `has version 0 of its part "lock", and this program needs version 1: run pglock.Migrate`) {
			t.Errorf("New with version %s: %v, want %v", version, err, want)
		}
		if err == nil {
			_ = locker.Close(context.Background())
		}
	}
}

// OpenDriver does no I/O, so its calls report what New would.
func TestOpenDriver_C_schemaMissing_callsRefused(t *testing.T) {
	t.Parallel()
	empty := servers.SharedPostgres(t).NewDatabase(t)
	d, err := pglock.OpenDriver(empty.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_, err = d.Acquire(context.Background(), acquire(owner1, time.Minute))
	if !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) || !strings.Contains(err.Error(), "run pglock.Migrate") {
		t.Errorf("Acquire without a schema: %v", err)
	}
	migrate(t, empty.URL())
	if reply, err := d.Acquire(context.Background(), acquire(owner1, time.Minute)); err != nil || reply.Outcome != driver.Granted {
		t.Errorf("Acquire after Migrate: %+v, %v", reply, err)
	}
}

// The driver alone meets such names: the Locker refuses them.
func TestDriver_C_nameNotUTF8_refused(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	d := drivers(db.URL())(t)
	for _, key := range []string{"nul\x00", "\xff\xfeu\x00t\x00f\x001\x006\x00"} {
		req := acquire(owner1, time.Minute)
		req.Name.Key = key
		_, acquired := d.Acquire(context.Background(), req)
		_, released := d.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: owner1, Tombstone: time.Minute})
		extended := d.Extend(context.Background(), []driver.ExtendRequest{{Name: req.Name, Owner: owner1, TTL: time.Minute}})[0].Err
		for call, err := range map[string]error{"Acquire": acquired, "Release": released, "Extend": extended} {
			if !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) {
				t.Errorf("%s of a name that is not UTF-8: %v, want ErrRefused", call, err)
			}
			if strings.Contains(err.Error(), "0x") {
				t.Errorf("%s: the error shows bytes of the name: %v", call, err)
			}
		}
	}
	if rows := do(t, db, "SELECT count(*) FROM belugalock.lease"); rows != "0" {
		t.Errorf("%s rows were written", rows)
	}
}

// A read-only server answers no call with "no", and none has an effect.
func TestDriver_C_readOnly_neverNo(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	url := grantedTo(t, db, "app")
	d := drivers(url)(t)
	held := acquire(owner1, time.Minute)
	if _, err := d.Acquire(context.Background(), held); err != nil {
		t.Fatal(err)
	}
	other := driver.Name{Namespace: "n", Key: "unknown"}
	readOnly := func(is string) {
		do(t, db, "ALTER ROLE app"+db.Name()+" SET default_transaction_read_only = "+is)
		do(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app"+db.Name()+"'")
	}
	readOnly("on")
	before := do(t, db, "SELECT * FROM belugalock.lease")
	ctx := context.Background()
	for i := range 3 {
		req := acquire(owner2, time.Minute)
		req.Alive, req.Seq = time.Second, 1
		_, busy := d.Acquire(ctx, req)
		_, cancelled := d.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner2})
		_, unknown := d.Release(ctx, driver.ReleaseRequest{Name: other, Owner: owner2})
		_, raised := d.Raise(ctx, driver.RaiseRequest{Name: other, Owner: owner2})
		extended := d.Extend(ctx, []driver.ExtendRequest{{Name: name, Owner: owner2, TTL: time.Minute}})[0].Err
		batch := d.Extend(ctx, []driver.ExtendRequest{
			{Name: other, Owner: owner2, TTL: time.Minute}, {Name: name, Owner: owner2, TTL: time.Minute},
		})
		for call, err := range map[string]error{
			"Acquire": busy, "Release": cancelled, "Release of an unknown name": unknown, "Raise": raised,
			"Extend": extended, "Extend of two": errors.Join(batch[0].Err, batch[1].Err),
		} {
			if !driver.MayHaveEffect(err) && !errors.Is(err, driver.ErrTemporary) || err == nil {
				t.Errorf("%s in a read-only database: %v, want ErrTemporary", call, err)
			}
			if i > 0 && !errors.Is(err, driver.ErrTemporary) { // the first calls find cut connections
				t.Errorf("%s in a read-only database: %v, want ErrTemporary", call, err)
			}
		}
	}
	if after := do(t, db, "SELECT * FROM belugalock.lease"); after != before {
		t.Errorf("the row was %s, and is %s", before, after)
	}
	do(t, db, "ALTER ROLE app"+db.Name()+" SET default_transaction_read_only = off")
	for try := 0; ; try++ { // ⚑ each call closes the connection that it found read-only
		if _, err := d.Raise(ctx, driver.RaiseRequest{Name: name, Owner: owner1}); err == nil {
			break
		} else if try == 2 {
			t.Fatalf("Raise, writable again: %v", err)
		}
	}
}

// The functions are for roles that were granted them.
func TestDriver_C_rightMissing_refused(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	url := grantedTo(t, db, "app")
	d := drivers(url)(t)
	role := "app" + db.Name()
	for _, right := range []string{"USAGE ON SCHEMA belugalock", "EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock"} {
		do(t, db, "REVOKE "+right+" FROM "+role)
		_, acquired := d.Acquire(context.Background(), acquire(owner1, time.Minute))
		_, connected := pglock.New(context.Background(), newPool(t, url), nil)
		if !errors.Is(acquired, driver.ErrRights) || driver.MayHaveEffect(acquired) ||
			!errors.Is(connected, distlock.ErrRefused) || !strings.Contains(connected.Error(), "grant the role") {
			t.Errorf("without %s: Acquire: %v; New: %v", right, acquired, connected)
		}
		do(t, db, "GRANT "+right+" TO "+role)
	}
	s := newSession(t, url)
	for _, table := range []string{"lease", "waiter", "tomb", "version"} {
		if code := s.do("SELECT FROM belugalock." + table); code != "42501" {
			t.Errorf("an application reads the table %s: %q", table, code)
		}
	}
}

// A nil transaction is an error of the caller, and no panic.
func TestFence_C_nilTx_isRefused(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func() error{
		"Fence":     func() error { return pglock.Fence(context.Background(), nil, nil) },
		"FenceSQL":  func() error { return pglock.FenceSQL(context.Background(), nil, nil) },
		"TxLock":    func() error { return pglock.TxLock(context.Background(), nil, "k") },
		"TxLockSQL": func() error { return pglock.TxLockSQL(context.Background(), nil, "k") },
	} {
		if err := call(); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%s: %v, want ErrInvalidOption", name, err)
		}
	}
}
