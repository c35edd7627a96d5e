package pglock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
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
	d := openDriver(t, db.URL())
	reply := d.Extend(t.Context(), []driver.ExtendRequest{{Name: name, Owner: owner1, TTL: time.Minute}})[0]
	if reply.Held || reply.Err == nil || !driver.MayHaveEffect(reply.Err) {
		t.Errorf("%+v, want an error", reply)
	}
}

// New fails with a typed error that shows what to do, and no part of the password.
func TestNew_C_badServer_typedError(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	url, unable := grantedTo(t, db, "app"), grantedTo(t, db, "unable")
	do(t, db, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock FROM unable"+db.Name())
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
		"right":    {unable, "", "grant the role", distlock.ErrRefused},
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
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, locker := pglock.New(ctx, newPool(t, url), nil)
	_, session := pglock.NewSessionLock(ctx, newPool(t, url))
	for _, err := range []error{locker, session} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("with a context that has ended: %v", err)
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
	pool := newPool(t, migrated(t).URL(), func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "BEGIN")
			return err
		}
	})
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
	d := openDriver(t, empty.URL())
	_, err := d.Acquire(context.Background(), acquire(owner1, time.Minute))
	if !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) || !strings.Contains(err.Error(), "run pglock.Migrate") {
		t.Errorf("Acquire without a schema: %v", err)
	}
	migrate(t, empty.URL())
	if reply, err := d.Acquire(context.Background(), acquire(owner1, time.Minute)); err != nil || reply.Outcome != driver.Granted {
		t.Errorf("Acquire after Migrate: %+v, %v", reply, err)
	}
}

// A read-only server answers no call with "no", and none has an effect.
func TestDriver_C_readOnly_neverNo(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	url := grantedTo(t, db, "app")
	d := drivers(url)(t)
	mustAcquire(t, d, acquire(owner1, time.Minute))
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
		_, asked := d.(driver.Asker).Ask(ctx, driver.AskRequest{Name: name})
		extended := d.Extend(ctx, []driver.ExtendRequest{{Name: name, Owner: owner2, TTL: time.Minute}})[0].Err
		batch := d.Extend(ctx, []driver.ExtendRequest{
			{Name: other, Owner: owner2, TTL: time.Minute}, {Name: name, Owner: owner2, TTL: time.Minute},
		})
		for call, err := range map[string]error{
			"Acquire": busy, "Release": cancelled, "Release of an unknown name": unknown, "Raise": raised, "Ask": asked,
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

// A nil transaction or pool is an error of the caller, and no panic.
func TestFence_C_nilTx_isRefused(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func() error{
		"Fence":          func() error { return pglock.Fence(context.Background(), nil, nil) },
		"FenceSQL":       func() error { return pglock.FenceSQL(context.Background(), nil, nil) },
		"TxLock":         func() error { return pglock.TxLock(context.Background(), nil, "k") },
		"TxLockSQL":      func() error { return pglock.TxLockSQL(context.Background(), nil, "k") },
		"New":            func() error { _, err := pglock.New(context.Background(), nil, nil); return err },
		"NewSessionLock": func() error { _, err := pglock.NewSessionLock(context.Background(), nil); return err },
	} {
		if err := call(); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%s: %v, want ErrInvalidOption", name, err)
		}
	}
}
