package pglock_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

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
		if err != nil {
			t.Fatal(err)
		}
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
