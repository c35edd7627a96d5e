package pgstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// user makes a role without rights, and returns the URL for it.
func (r *rig) user(name string) string {
	r.Helper()
	r.do("CREATE ROLE " + name + " LOGIN PASSWORD 'p'")
	r.Cleanup(func() { _, _ = r.db.Do("DROP OWNED BY " + name + "; DROP ROLE " + name) })
	return strings.Replace(r.db.URL(), "postgres@", name+":p@", 1)
}

// Migrate takes no right to a function of the application away.
func TestMigrate_functionsOfOthers_keepRights(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.do("CREATE FUNCTION other() RETURNS int LANGUAGE sql RETURN 1; DELETE FROM version WHERE part = 'store'; " +
		"DROP TABLE session, exchange, known, pending CASCADE")
	for _, f := range strings.Fields(r.do(`SELECT string_agg(oid::regprocedure::text, ' ') FROM pg_proc
		WHERE pronamespace = 'belugalock'::regnamespace AND proname IN ('append_v1', 'append_release_v1', 'close_v1',
		'inboxes_v1', 'pending_v1', 'put_v1', 'replace_v1', 'read_v1', 'sessions_v1', 'session_sweep_v1',
		'session_lock_v1')`)) {
		r.do("DROP FUNCTION " + f)
	}
	must(t, pgstore.Migrate(t.Context(), r.pool, nil))
	if may := r.do("SELECT proacl IS NULL FROM pg_proc WHERE proname = 'other'"); may != "t" {
		t.Error("the function of the application has other rights")
	}
	if public := r.do(`SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'belugalock'::regnamespace
		AND proname <> 'other' AND (proacl IS NULL OR proacl::text LIKE '%,=X%' OR proacl::text LIKE '{=X%')`); public != "" {
		t.Errorf("every role may call %s", public)
	}
}

// Without the schema, the first call fails, and says what to run.
func TestMigrate_missing_refused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := returned(pgstore.NewDriver(r.pool, &pgstore.Options{Schema: "elsewhere"}))(t)
	_, err := d.Ping(t.Context())
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "pgstore.Migrate") {
		t.Errorf("%v", err)
	}
	mayNot := connect(t, r.user("migrates")) // a role that may not make a schema
	if err := pgstore.Migrate(t.Context(), mayNot, &pgstore.Options{Schema: "elsewhere"}); !errors.Is(err, distlock.ErrRefused) {
		t.Errorf("Migrate: %v", err)
	}
	must(t, pgstore.Migrate(t.Context(), r.pool, &pgstore.Options{Schema: "elsewhere"}))
	r.Driver = returned(pgstore.NewDriver(r.pool, &pgstore.Options{Schema: "elsewhere"}))(t)
	r.saves("s", r.fence, 1, "x")
	if n := r.do("SELECT count(*) FROM elsewhere.exchange"); n != "1" {
		t.Errorf("%s exchanges in the other schema", n)
	}
	for _, bad := range []string{"Upper", "a b", "pg_own", `a"b`, strings.Repeat("x", 64)} {
		_, err := pgstore.NewDriver(r.pool, &pgstore.Options{Schema: bad})
		err2 := pgstore.Migrate(t.Context(), r.pool, &pgstore.Options{Schema: bad})
		if !errors.Is(err, distlock.ErrInvalidOption) || !errors.Is(err2, distlock.ErrInvalidOption) {
			t.Errorf("%s: %v, %v", bad, err, err2)
		}
	}
}
