package pgstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

const hour = int64(time.Hour / time.Microsecond)

// later lets time pass for all sessions and IDs.
func (r *rig) later(d time.Duration) {
	r.Helper()
	r.do(fmt.Sprintf(`UPDATE session SET kept_until = kept_until - '%[1]d ms'::interval,
			sweep_at = sweep_at - '%[1]d ms'::interval;
		UPDATE known SET until = until - '%[1]d ms'::interval`, d.Milliseconds()))
}

// The mark of a session without an exchange lasts for 24 hours, and that of an expired one for
// IdleTTL and 24 hours. After that, a token older than 23 hours is not admitted.
func TestExpiry_S2_markOutlivesExchanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{IdleTTL: time.Hour})
	later := r.fence + 100*hour
	for name, c := range map[string]struct {
		begin func(name string)
		kept  time.Duration
	}{
		"read":  {func(name string) { r.is(storedriver.Done)(r.shows(name, later)) }, 24 * time.Hour},
		"saved": {func(name string) { r.saves(name, later, 1, "x") }, 25 * time.Hour},
		"cleared": {func(name string) {
			r.is(storedriver.Done)(r.Clear(t.Context(), storedriver.Clear{Write: r.write(name, later, 1)}))
		}, 24 * time.Hour},
		"closed": {func(name string) {
			returned(r.Close(t.Context(), storedriver.CloseRequest{Session: name, Mark: later}))(t)
		}, 24 * time.Hour},
	} {
		c.begin(name)
		r.later(c.kept - time.Minute)
		if got := r.texts(name); len(got) > 0 { // though no sweep has come yet
			t.Errorf("%s: %q", name, got)
		}
		r.is(storedriver.Stale)(r.shows(name, r.fence))
		r.later(2 * time.Minute)
		r.is(storedriver.Unowned)(r.shows(name, r.fence-23*hour-hour/60))
		r.is(storedriver.Done)(r.shows(name, r.fence-22*hour))
	}
}

// Sessions that nothing uses any more are removed by the first accesses of others: their exchanges
// after IdleTTL, a part at a time, then their IDs, then their rows.
func TestExpiry_sweep_removesAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{IdleTTL: time.Hour, RememberIDs: 48 * time.Hour})
	c := named(content("an exchange with an ID"), "id")
	r.is(storedriver.Done)(r.Append(t.Context(), storedriver.Append{Write: r.write("old", r.fence, 1), Content: c}))
	r.saves("old", r.fence, 2, strings.Split(strings.Repeat("x ", 149), " ")...)
	for _, c := range []storedriver.CloseRequest{{Session: "old", ID: storedriver.HashID("1")}, {Session: "closed", ID: storedriver.HashID("2")}} {
		returned(r.Close(t.Context(), c))(t)
	}
	busy := int64(0)
	left := func(accesses int, want string) {
		t.Helper()
		for range accesses {
			busy++
			r.saves("busy", r.fence+busy, 1, "x")
		}
		if got := r.do(`SELECT (SELECT string_agg(name, ' ' ORDER BY name) FROM session),
			(SELECT count(*) FROM exchange WHERE session = 1), (SELECT count(*) FROM known)`); got != want {
			t.Errorf("left: %s, want %s", got, want)
		}
	}
	left(3, "busy closed old|151|3")
	r.later(2 * time.Hour)
	left(1, "busy closed old|51|3")
	r.is(storedriver.Stale)(r.shows("old", r.fence-1))
	left(3, "busy closed old|0|3")
	r.is(storedriver.Stale)(r.shows("old", r.fence-1))
	r.later(25 * time.Hour)
	left(3, "busy closed old|0|3")
	r.later(25 * time.Hour)
	left(3, "busy|0|0")
}

// Sessions with one Save each come and go. The sweep keeps up.
func TestExpiry_oneSaveEach_rowsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{IdleTTL: time.Hour})
	const each = 30
	for round := range 5 {
		for n := range each {
			w := r.write(fmt.Sprint(round, "-", n), r.fence, 1)
			c := named(content("an exchange with an ID"), "id")
			r.is(storedriver.Done)(r.Append(t.Context(), storedriver.Append{Write: w, Content: c}))
			r.later(2 * time.Hour)
		}
	}
	// Each of the rows is kept for 25 hours, and found a little later.
	if n, _ := strconv.Atoi(r.do("SELECT count(*) FROM session")); n > 20 {
		t.Errorf("of %d sessions, %d are left", 5*each, n)
	}
	if n, _ := strconv.Atoi(r.do("SELECT count(*) FROM known")); n > 20 {
		t.Errorf("of %d IDs, %d are left", 5*each, n)
	}
}

// New IDs remove expired ones of their session.
func TestExpiry_ids_prunedByNewOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{RememberIDs: time.Hour})
	n := int64(0)
	ids := func(count int) {
		for range count {
			n++
			c := named(content(fmt.Sprintf("%32d", n)), fmt.Sprint(n))
			r.is(storedriver.Done)(r.Append(t.Context(), storedriver.Append{Write: r.write("s", r.fence, n), Content: c}))
		}
	}
	ids(200)
	r.later(2 * time.Hour)
	ids(200)
	if expired := r.do("SELECT count(*) FROM known WHERE until < now()"); len(expired) > 2 {
		t.Errorf("%s of 200 expired IDs are left after 200 new ones", expired)
	}
	if live := r.do("SELECT count(*) FROM known WHERE until > now()"); live != "200" {
		t.Errorf("%s of 200 IDs are known", live)
	}
}

// Another transaction has the row of an expired session. Accesses of other sessions do not wait for it.
func TestExpiry_sweep_waitsForNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{IdleTTL: time.Second})
	r.saves("old", r.fence, 1, "x")
	r.later(time.Minute)
	unlock := r.locked("session")
	r.saves("busy", r.fence, 1, "x")
	unlock()
	r.saves("busy", r.fence+1, 1, "x")
	if left := r.do("SELECT exchanges FROM session WHERE name = 'old'"); left != "0" {
		t.Errorf("%s exchanges", left)
	}
}

// At a stricter isolation, two calls that sweep one session would fail. So none of them sweeps.
func TestExpiry_stricterIsolation_noSweep(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{IdleTTL: time.Second})
	r.saves("old", r.fence, 1, "x")
	r.later(time.Minute)
	tx := returned(r.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	const show = "SELECT outcome FROM belugalock.read_v1('session', 'busy', true, 9e15::bigint, 0, 0, 0, NULL, " +
		"'{0,0,0}', false, '{0,0,0}', 1, NULL, NULL, false, false)"
	returned(tx.Exec(t.Context(), show))(t)
	must(t, tx.Commit(t.Context()))
	if left := r.do("SELECT exchanges FROM session WHERE name = 'old'"); left != "1" {
		t.Errorf("%s exchanges", left)
	}
	returned(r.pool.Exec(t.Context(), show))(t)
	if left := r.do("SELECT exchanges FROM session WHERE name = 'old'"); left != "0" {
		t.Errorf("%s exchanges", left)
	}
}
