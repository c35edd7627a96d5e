package pglock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// Each function chooses whether its transaction waits for the disk.
func TestFunctions_S1_durability(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s := newSession(t, db.URL())
	const (
		hold  = "SELECT belugalock.acquire_v1('n', 'k', 'a', 60000000, '', 0, 0, 0, '')"
		enter = "SELECT belugalock.acquire_v1('n', 'k', 'b', 60000000, '', 60000000, 1, 0, '')"
		old   = "UPDATE belugalock.lease SET expires_at = 1"
	)
	for name, call := range map[string]struct {
		before  []string
		sql     string
		durable bool
	}{
		"new name":               {nil, hold, true},
		"grant":                  {[]string{hold, old}, enter, true},
		"grant by the full path": {[]string{hold, enter, old, "UPDATE belugalock.waiter SET alive_until = 1"}, enter, true},
		"repeated grant":         {[]string{hold}, hold, true},
		"handoff by an acquire": {[]string{hold, enter, old},
			"SELECT belugalock.acquire_v1('n', 'k', 'c', 60000000, '', 0, 0, 0, '')", true},
		"enqueue":         {[]string{hold}, enter, false},
		"keepalive":       {[]string{hold, enter}, enter, false},
		"cancelled":       {[]string{hold, old}, hold, false},
		"release":         {[]string{hold}, "SELECT belugalock.release_v1('n', 'k', 'a', 0, false)", false},
		"handoff":         {[]string{hold, enter}, "SELECT belugalock.release_v1('n', 'k', 'a', 0, false)", true},
		"leave":           {[]string{hold, enter}, "SELECT belugalock.release_v1('n', 'k', 'b', 0, true)", false},
		"tombstone":       {[]string{hold}, "SELECT belugalock.release_v1('n', 'k', 'b', 1000000, false)", true},
		"first tombstone": {nil, "SELECT belugalock.release_v1('n', 'k', 'b', 1000000, false)", true},
		"break":           {[]string{hold}, "SELECT belugalock.break_v1('n', 'k', (SELECT token FROM belugalock.lease))", true},
		"extend": {[]string{hold},
			"SELECT belugalock.extend_v1('{n}', '{k}', '{a}', '{60000000}', 0)", true},
		"raise":  {[]string{hold}, "SELECT belugalock.raise_v1('n', 'k', 'a', (SELECT token + 1 FROM belugalock.lease))", true},
		"ask":    {[]string{hold}, "SELECT belugalock.ask_v1('n', 'k', (SELECT token FROM belugalock.lease), '', 0)", true},
		"look":   {[]string{hold}, "SELECT belugalock.ask_v1('n', 'k', 0, '', 0)", true},
		"notify": {nil, "SELECT belugalock.notify_v1('{c}', '{m}')", false},
	} {
		for setting, durable := range map[string]string{"on": "on", "off": "on", "local": "on", "remote_apply": "remote_apply"} {
			s.must("TRUNCATE belugalock.lease, belugalock.waiter, belugalock.tomb")
			for _, sql := range call.before {
				s.must(sql)
			}
			s.must("SET synchronous_commit = " + setting + "; SET client_min_messages = error; BEGIN; " + call.sql)
			want := map[bool]string{true: durable, false: "off"}[call.durable]
			if got := s.must("SHOW synchronous_commit"); got != want {
				t.Errorf("%s with the setting %s: commits with %s, want %s", name, setting, got, want)
			}
			// ⚑ The warning of a cancelled commit has to reach the driver.
			if got := s.must("SHOW client_min_messages"); call.durable && got != "warning" {
				t.Errorf("%s: messages below %s are hidden", name, got)
			}
			s.must("ROLLBACK; RESET synchronous_commit; RESET client_min_messages")
		}
	}
}

// An operator has deleted the row of a name. Its tombstones stay.
func TestAcquire_S1_rowDeleted_cancelledStays(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	d := drivers(db.URL())(t)
	must(t, second(d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: owner1, Tombstone: time.Minute})))
	do(t, db, "DELETE FROM belugalock.lease")
	if reply, err := d.Acquire(t.Context(), acquire(owner1, time.Minute)); err != nil || reply.Outcome != driver.Cancelled {
		t.Errorf("Acquire of a cancelled owner: %+v, %v", reply, err)
	}
}

// A role that may create operators in the schema public must not choose what the functions run.
func TestMigrate_S1_foreignOperator_isNotUsed(t *testing.T) {
	t.Parallel()
	db := servers.SharedPostgres(t).NewDatabase(t)
	do(t, db, `CREATE FUNCTION public.evil(numeric, integer) RETURNS numeric LANGUAGE sql RETURN 0;
		CREATE OPERATOR public.* (FUNCTION = public.evil, LEFTARG = numeric, RIGHTARG = integer)`)
	migrate(t, db.URL())
	if clock := do(t, db, "SELECT belugalock.clock_v1() > 1700000000000000"); clock != "t" {
		t.Error("the clock of the functions uses an operator of another program")
	}
}

// Migrate changes nothing of another program.
func TestMigrate_C_schemaInUse_refused(t *testing.T) {
	t.Parallel()
	db := servers.SharedPostgres(t).NewDatabase(t)
	do(t, db, "CREATE FUNCTION public.mine() RETURNS integer LANGUAGE sql RETURN 1")
	err := pglock.Migrate(context.Background(), newPool(t, db.URL()), &pglock.Options{Schema: "public"})
	if err == nil {
		t.Error("Migrate accepts a schema with a function of another program")
	}
	if right := do(t, db, "SELECT has_function_privilege('public', 'public.mine()', 'EXECUTE')"); right != "t" {
		t.Error("Migrate took a right on a function of another program")
	}
	if tables := do(t, db, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"); tables != "0" {
		t.Errorf("a refused Migrate has made %s tables", tables)
	}
}

// No role has a right that it was not granted.
func TestMigrate_C_publicHasNoRight(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	if open := do(t, db, `SELECT string_agg(proname, ' ') FROM pg_proc
		WHERE pronamespace = 'belugalock'::regnamespace AND has_function_privilege('public', oid, 'EXECUTE')`); open != "" {
		t.Errorf("every role may call %s", open)
	}
	if tables := do(t, db, `SELECT string_agg(relname, ' ') FROM pg_class
		WHERE relnamespace = 'belugalock'::regnamespace AND relkind = 'r' AND has_table_privilege('public', oid, 'SELECT')`); tables != "" {
		t.Errorf("every role may read %s", tables)
	}
	if loose := do(t, db, `SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'belugalock'::regnamespace
		AND prosecdef AND NOT coalesce(proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}'`); loose != "" {
		t.Errorf("these run with the rights of their owner and the caller's search_path: %s", loose)
	}
}

// A connection keeps the plans of a function. ⚑ Made while a table was tiny, they must not read a table
// that has grown since: its statistics come late.
func TestFunctions_plansFromTinyTables_fewRows(t *testing.T) {
	db := migrated(t)
	s := newSession(t, db.URL())
	calls := []string{
		"SELECT outcome FROM belugalock.acquire_v1('n', 'k', '#a', 60000000, '', 0, 0, 0, '')",
		"SELECT outcome FROM belugalock.acquire_v1('n', 'k', '#b', 60000000, '', 60000000, 1, 0, '')",
		"SELECT outcome FROM belugalock.acquire_v1('n', 'k', '#b', 60000000, '', 60000000, 2, 0, '')",
		"SELECT held::text FROM belugalock.raise_v1('n', 'k', '#a', 1)",
		"SELECT asks::text FROM belugalock.ask_v1('n', 'k', 1, 'work', 0)",
		"SELECT outcome FROM belugalock.extend_v1('{n}', '{k}', '{#a}', '{60000000}', 0)",
		"SELECT outcome FROM belugalock.extend_v1('{n}', '{k}', '{#a}', '{60000000}', 10)",
		"SELECT held::text FROM belugalock.inspect_v1('n', 'k')",
		"SELECT key FROM belugalock.list_v1('n', 'k', 'l', 1, 1)",
		"SELECT granted FROM belugalock.poll_v1('{n}', '{k}', '{#b}')",
		"SELECT to_message FROM belugalock.release_v1('n', 'k', '#a', 0, false)",
		"SELECT released::text FROM belugalock.release_v1('n', 'k', '#b', 1000, true)",
		"SELECT released::text FROM belugalock.break_v1('n', 'k', 1)",
	}
	s.must("VACUUM ANALYZE belugalock.lease, belugalock.waiter, belugalock.tomb")
	for round := range 8 {
		for _, sql := range calls {
			s.must(strings.ReplaceAll(sql, "#", strconv.Itoa(round)))
		}
		if round == 0 {
			s.must("VACUUM ANALYZE belugalock.lease, belugalock.waiter, belugalock.tomb")
		}
	}
	const rows = 5000
	do(t, db, fmt.Sprintf(`INSERT INTO belugalock.lease (namespace, key) SELECT 'm', i::text FROM generate_series(1, %[1]d) AS i;
		INSERT INTO belugalock.waiter SELECT 'm', i::text, i, i::text, 0, 1, '', '' FROM generate_series(1, %[1]d) AS i;
		INSERT INTO belugalock.tomb SELECT 'm', i::text, i::text, 0 FROM generate_series(1, %[1]d) AS i`, rows))
	read := func() int {
		s.must("SELECT pg_stat_force_next_flush()::text")
		n, err := strconv.Atoi(do(t, db, `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
			WHERE schemaname = 'belugalock' AND relname IN ('lease', 'waiter', 'tomb')`))
		must(t, err)
		return n
	}
	for i, sql := range calls {
		before := read()
		s.must(strings.ReplaceAll(sql, "#", "100"))
		if n := read() - before; n > 100 {
			t.Errorf("call %d reads %d rows: %s", i, n, sql)
		}
	}
}
