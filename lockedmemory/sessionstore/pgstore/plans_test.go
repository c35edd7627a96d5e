package pgstore_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// long makes a session of 100,000 exchanges in 50,000 turns, beside 2,000 short ones that the
// planner takes for the average. Its last place is (r.fence, 100,000).
func (r *rig) long() {
	r.Helper()
	r.saves("long", r.fence-50_000, 1, "x")
	r.do(`DELETE FROM exchange;
		INSERT INTO exchange SELECT s.id, s.fence + g / 2, g, 0, NULL, NULL, NULL, 200, ARRAY['\x78'::bytea]
			FROM session s, generate_series(1, 100000) g;
		UPDATE session SET exchanges = 100000, bytes = 20000000, fence = fence + 50000, n = 100000;
		INSERT INTO exchange SELECT -g, 1, 1, 0, NULL, NULL, NULL, 200, ARRAY['\x78'::bytea] FROM generate_series(1, 2000) g;
		ANALYZE;`)
}

// touched returns how many rows of a table the reads of a call have touched, without their order.
func (r *rig) touched(call func(d driver.Driver)) (rows int) {
	r.Helper()
	// The statistics of one connection are complete at once.
	config := r.pool.Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(r, err)
	defer pool.Close()
	d, err := pgstore.NewDriver(pool, &pgstore.Options{Retention: r.Retention()})
	must(r, err)
	count := func() int {
		var text string
		must(r, pool.QueryRow(r.Context(), `SELECT (seq_tup_read + idx_tup_fetch)::text FROM pg_stat_user_tables
			WHERE relname = 'exchange'`, pgx.QueryExecModeExec).Scan(&text))
		n, err := strconv.Atoi(text)
		must(r, err)
		return n
	}
	flush := func() int {
		_, err := pool.Exec(r.Context(), "SELECT pg_stat_force_next_flush()")
		must(r, err)
		return count()
	}
	before := flush()
	call(d)
	return flush() - before
}

// A page of 20 reads some 20 rows of 100,000, from every place and in both directions.
func TestRead_longSession_fewRows(t *testing.T) {
	t.Parallel()
	r := newRig(t, driver.Retention{})
	r.long()
	middle := lockedmemory.Place{Fence: r.fence - 25_000, N: 50_000}
	for name, read := range map[string]driver.Read{
		"forward":      {},
		"backward":     {Backward: true},
		"after":        {From: middle},
		"before":       {From: middle, Backward: true},
		"of a turn ID": {ID: "id", Named: true},
	} {
		read.Session, read.Limit = "long", 20
		for range 8 { // the plan may change after 5 calls
			rows := r.touched(func(d driver.Driver) {
				page, err := d.Read(t.Context(), read)
				if err != nil || len(page.Entries) != 20 && !read.Named {
					t.Fatalf("%s: %d entries, %v", name, len(page.Entries), err)
				}
			})
			if rows > 50 {
				t.Errorf("%s: %d rows", name, rows)
			}
		}
	}
}

// A Save touches no exchange but its own. The first access of a lease trims 100 of 100,000, and the
// rest of a turn.
func TestAppend_longSession_fewRows(t *testing.T) {
	t.Parallel()
	r := newRig(t, driver.Retention{MaxExchanges: 1000, MaxBytes: 64 << 10, MaxAge: time.Second})
	r.long()
	fence := r.fence + time.Minute.Microseconds()
	for n := int64(1); n < 9; n++ {
		start := time.Now()
		rows := r.touched(func(d driver.Driver) {
			r.is(driver.Done)(d.Append(t.Context(), driver.Append{Write: r.write("long", fence, n), Content: content("y")}))
		})
		if most := map[bool]int{true: 310, false: 10}[n == 1]; rows > most {
			t.Errorf("Save %d: %d rows in %s, want at most %d", n, rows, time.Since(start), most)
		}
	}
	left := r.do("SELECT exchanges, bytes, (SELECT count(*) FROM exchange WHERE session > 0) FROM session")
	if left != "99907|19980608|99907" {
		t.Errorf("left: %s", left)
	}
}
