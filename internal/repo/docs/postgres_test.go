package docs

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// The role of the page can do everything, and reads no table. So can a role that had its rights before
// a Migrate.
func TestPostgres_rightsSuffice(t *testing.T) {
	t.Parallel()
	db := testservers.SharedPostgres(t).NewDatabase(t)
	owner, agent := poolOf(t, db, "owner"), poolOf(t, db, "agent")
	if _, err := db.Do("GRANT CREATE ON DATABASE " + db.Name() + " TO owner"); err != nil {
		t.Fatal(err)
	}
	if err := pglock.Migrate(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	grants := PostgresRights.Blocks(t, "sql")[0]
	if _, err := owner.Exec(t.Context(), grants, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if err := pgstore.Migrate(t.Context(), owner, nil); err != nil { // a later version, for the grants
		t.Fatal(err)
	}

	key := lockedmemory.FixedKey("session")
	locker, err := pglock.New(t.Context(), agent, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(context.Background())
	store, err := pgstore.New(agent, key, sessionstore.JSON[string]{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := lockedmemory.New(store, locker, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = memory.Turn(t.Context(), func(ctx context.Context) error {
		_, err := memory.Load(ctx, "")
		lease, _ := lockedmemory.Lease(ctx)
		fenced := pgx.BeginFunc(ctx, agent, func(tx pgx.Tx) error { return pglock.Fence(ctx, tx, lease) })
		return errors.Join(err, fenced, memory.Save(ctx, "q", "a"))
	})
	_, ping := store.Ping(t.Context())
	err = errors.Join(err, ping, memory.Save(t.Context(), "q", "a"), memory.Clear(t.Context()), memory.Delete(t.Context()))
	if err != nil {
		t.Error(err)
	}
	tables, err := db.Do("SELECT tablename FROM pg_tables WHERE schemaname = 'belugalock'")
	if err != nil || len(strings.Fields(tables)) < 5 {
		t.Fatalf("tables %q, %v", tables, err)
	}
	for _, table := range strings.Fields(tables) {
		if _, err := agent.Exec(t.Context(), "SELECT FROM belugalock."+table); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("SELECT FROM %s: %v", table, err)
		}
	}
}

// poolOf is a pool of a new role, which lasts as long as the test. The password of the role is its name.
func poolOf(t *testing.T, db *testservers.PostgresDatabase, role string) *pgxpool.Pool {
	t.Helper()
	if _, err := db.Do("CREATE ROLE " + role + " LOGIN PASSWORD '" + role + "'"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Do("BEGIN READ WRITE; DROP OWNED BY " + role + " CASCADE; DROP ROLE " + role + "; COMMIT"); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, role)
	pool, err := pgxpool.New(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Every query for operators is one that the server takes.
func TestPostgres_queriesRun(t *testing.T) {
	t.Parallel()
	db := testservers.SharedPostgres(t).NewDatabase(t)
	queries := 0
	for _, p := range Pages(t) {
		for _, b := range p.blocks {
			if b.lang != "sql" || !strings.HasPrefix(b.text, "SELECT") {
				continue // see TestPostgres_rightsSuffice
			}
			queries++
			if _, err := db.Do(b.text); err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
			}
		}
	}
	if queries == 0 {
		t.Error("no page has a query")
	}
}

// The texts of the table of errors are those of the library and the server.
func TestPostgres_errorTexts(t *testing.T) {
	t.Parallel()
	db := testservers.SharedPostgres(t).NewDatabase(t)
	admin, err := pgxpool.New(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	_, missing := pglock.New(t.Context(), admin, nil)
	if err := pglock.Migrate(t.Context(), admin, nil); err != nil {
		t.Fatal(err)
	}
	poor := poolOf(t, db, "poor")
	if _, err := db.Do("UPDATE belugalock.version SET version = 0"); err != nil {
		t.Fatal(err)
	}
	_, older := pglock.New(t.Context(), admin, nil)
	if _, err := db.Do("UPDATE belugalock.version SET version = 1"); err != nil {
		t.Fatal(err)
	}
	_, rights := pglock.New(t.Context(), poor, nil)
	if _, err := db.Do("ALTER ROLE poor PASSWORD 'another'"); err != nil {
		t.Fatal(err)
	}
	_, password := pglock.New(t.Context(), poor, nil)
	if _, err := db.Do("ALTER DATABASE " + db.Name() + " SET default_transaction_read_only = on"); err != nil {
		t.Fatal(err)
	}
	readOnly := tryAcquireError(t, open(t, db.URL(), nil))
	rows := PostgresErrors.Table(t)
	for text, err := range map[string]error{
		`the schema "belugalock" is missing in the database`: missing,
		`the schema "belugalock" has version 0 of its part`:  older,
		"SQLSTATE 28P01": password, "SQLSTATE 42501": rights, "SQLSTATE 25006": readOnly,
	} {
		inPage := slices.ContainsFunc(rows, func(row []string) bool { return strings.Contains(row[0], text) })
		if err == nil || !strings.Contains(err.Error(), text) || !inPage {
			t.Errorf("%s: the error is %v; in the page: %t", text, err, inPage)
		}
	}
}
