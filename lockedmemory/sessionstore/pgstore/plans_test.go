package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// long makes a session of n exchanges, two in each turn, beside 1,000 sessions and IDs. Its
// last place is (r.fence, n). The ID "id" has that of (r.fence - n/2 + 2500, 5000).
func (r *rig) long(n int) {
	r.Helper()
	c := named(content("an exchange with an ID"), "id")
	r.is(storedriver.Done)(r.Append(r.Context(), storedriver.Append{Write: r.write("long", r.fence-int64(n/2), 1), Content: c}))
	r.do(fmt.Sprintf(`DELETE FROM exchange;
		INSERT INTO exchange SELECT s.id, s.fence + g / 2, g, 0, NULL, CASE WHEN g = 5000 THEN ARRAY['id'::bytea] END,
			ARRAY['\x78'::bytea] FROM session s, generate_series(1, %[1]d) g;
		UPDATE session SET exchanges = %[1]d, fence = fence + %[1]d / 2, n = %[1]d;
		UPDATE known SET fence = fence + 2500, n = 5000;
		INSERT INTO session (namespace, name) SELECT 'other', g FROM generate_series(1, 1000) g;
		INSERT INTO known SELECT -g, md5(g::text)::uuid, now(), md5('')::uuid, 0, 0 FROM generate_series(1, 1000) g;
		SELECT pg_stat_force_next_flush()`, n))
}

// counting is a driver over one connection, whose statistics are complete at once. touched returns how
// many rows the queries have touched since its last call, without their order.
func (r *rig) counting() (d storedriver.Driver, touched func() int) {
	r.Helper()
	config := r.pool.Config()
	config.MaxConns = 1
	pool := returned(pgxpool.NewWithConfig(context.Background(), config))(r)
	r.Cleanup(pool.Close)
	last := 0
	touched = func() int {
		returned(pool.Exec(r.Context(), "SELECT pg_stat_force_next_flush()"))(r)
		var now int
		must(r, pool.QueryRow(r.Context(), `SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables
			WHERE relname IN ('session', 'exchange', 'known', 'pending')`).Scan(&now))
		defer func() { last = now }()
		return now - last
	}
	touched()
	return returned(pgstore.NewDriver(pool, &pgstore.Options{Retention: r.Retention()}))(r), touched
}

// A page of 20 reads some 20 rows of 100,000, from every place and in both directions.
func TestRead_longSession_fewRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d, touched := r.counting()
	r.do("ANALYZE") // else the server takes the empty tables for larger ones
	middle := lockedmemory.Place{Fence: r.fence - 25_000, N: 50_000}
	for _, there := range []int{0, 20} { // the server has planned the queries for a table without a row
		for name, read := range map[string]storedriver.Read{
			"forward":  {},
			"backward": {Backward: true},
			"after":    {From: middle},
			"before":   {From: middle, Backward: true},
			"of an ID": {ID: "id"},
		} {
			read.Session, read.Limit = "long", 20
			const calls = 8 // the plan may change after 5
			for range calls {
				page, err := d.Read(t.Context(), read)
				if err != nil || len(page.Entries) != there && (read.ID == "" || len(page.Entries) != min(there, 1)) {
					t.Fatalf("%s: %d entries, %v", name, len(page.Entries), err)
				}
			}
			if rows := touched(); rows > 50*calls {
				t.Errorf("%s: %d rows for %d calls", name, rows, calls)
			}
		}
		if there == 0 {
			r.long(100_000)
			touched()
		}
	}
}

// A Save touches no exchange but its own. The first access of a lease trims 100, and the rest of a
// turn.
func TestAppend_longSession_fewRows(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{MaxExchanges: 1000, MaxAge: time.Second})
	d, touched := r.counting()
	save := func(fence, n int64) {
		t.Helper()
		r.is(storedriver.Done)(d.Append(t.Context(), storedriver.Append{Write: r.write("long", fence, n), Content: content("y")}))
	}
	n := 0
	closes := func() {
		t.Helper()
		n++
		c := storedriver.CloseRequest{Session: "long", ID: storedriver.HashID(fmt.Sprint(n)), By: storedriver.HashID(fmt.Sprint(-n))}
		if reply, err := d.Close(t.Context(), c); err != nil || reply.Outcome != storedriver.Stopped {
			t.Fatalf("Close: %+v, %v", reply, err)
		}
	}
	save(r.fence-2*time.Hour.Microseconds(), 1)
	r.do("ANALYZE")
	for n := range int64(8) { // the server plans the queries for small tables
		save(r.fence-time.Hour.Microseconds()+n, 1)
		save(r.fence-time.Hour.Microseconds()+n, 2)
		closes()
	}
	r.long(10_000)
	touched()
	fence := r.fence + time.Minute.Microseconds()
	for n := int64(1); n < 9; n++ {
		closes()
		if rows := touched(); rows > 15 {
			t.Errorf("Close: %d rows", rows)
		}
		save(fence, n)
		if rows, most := touched(), map[bool]int{true: 400, false: 10}[n == 1]; rows > most {
			t.Errorf("Save %d: %d rows, want at most %d", n, rows, most)
		}
	}
	left := r.do("SELECT exchanges, (SELECT count(*) FROM exchange) FROM session WHERE name = 'long'")
	if left != "9907|9907" {
		t.Errorf("left: %s", left)
	}
}
