package pgstore_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// puts puts a question under an ID, and wants the outcome done.
func (r *rig) puts(session, id, question string) {
	r.Helper()
	r.is(storedriver.Done)(patiently(func() (storedriver.Verdict, error) {
		return r.Put(r.Context(), storedriver.Put{Session: session, ID: id, Question: []byte(question)})
	}))
}

// pends checks which IDs are pending, by arrival.
func (r *rig) pends(session, want string) {
	r.Helper()
	v, items, err := r.Pending(r.Context(), storedriver.Access{Session: session})
	var ids []string
	for n, item := range items {
		if ids = append(ids, item.ID); item.Age < 0 || n > 0 && item.Age > items[n-1].Age {
			r.Errorf("%s: ages %s", session, item.Age)
		}
	}
	if got := strings.Join(ids, " "); err != nil || v.Outcome != storedriver.Done || got != want {
		r.Errorf("%s: pending %.100q, %+v, %v; want %q", session, got, v, err, want)
	}
}

// all is the n-th write under a token, which answers the messages with IDs with spaces between them.
func (r *rig) all(session string, fence, n int64, ids, superseded string) storedriver.Append {
	c := content("x")
	c.IDs = strings.Fields(ids)
	return storedriver.Append{Write: r.write(session, fence, n), Content: c, Superseded: strings.Fields(superseded)}
}

// inboxes are all names, and says how many pages there were.
func (r *rig) inboxes() (names []string, pages int) {
	r.Helper()
	for after, more := "", true; more; more = after != "" {
		var page []string
		var err error
		page, after, err = r.Inboxes(r.Context(), after)
		must(r, err)
		names, pages = append(names, page...), pages+1
	}
	return names, pages
}

// ages makes the questions of a session older.
func (r *rig) ages(session string, d time.Duration) {
	r.Helper()
	r.do(fmt.Sprintf("UPDATE pending SET arrived = arrived - '%d ms'::interval WHERE name = '%s'", d.Milliseconds(), session))
}

// After a Delete, a Close, and an answer, no table has a question.
func TestErased_inbox_noTableHasQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	secret := strings.Repeat("secret", 1000)
	for name, erase := range map[string]func(){
		"delete": func() {
			r.is(storedriver.Done)(r.Clear(t.Context(), storedriver.Clear{Write: r.write("delete", r.fence, 1), Forget: true}))
		},
		"close": func() {
			returned(r.Close(t.Context(), storedriver.CloseRequest{Session: "close", ID: storedriver.HashID("id")}))(t)
		},
		"answered": func() {
			r.is(storedriver.Done)(r.Append(t.Context(), r.all("answered", r.fence, 1, "other id", "")))
		},
		"superseded": func() {
			r.is(storedriver.Done)(r.Append(t.Context(), r.all("superseded", r.fence, 1, "other", "id")))
		},
		"listed": func() {
			r.ages("listed", storedriver.InboxLife)
			r.pends("listed", "")
		},
		"put again": func() {
			r.ages("put again", storedriver.InboxLife)
			r.puts("put again", "id", "another")
		},
	} {
		r.puts("beside", "id", "another")
		r.puts(name, "id", secret)
		has := func() bool { return strings.Contains(r.tables(), hex.EncodeToString([]byte(secret))) }
		if !has() {
			t.Fatalf("%s: the question is not there before", name)
		}
		if erase(); has() {
			t.Errorf("%s: a table has the question", name)
		}
		r.pends("beside", "id")
	}
}

// A question is pending for 24 hours. An expired one counts for nothing, and later Puts remove some of any session.
func TestExpiry_inbox_24Hours(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for n := range storedriver.InboxMax {
		r.puts("old", fmt.Sprint(n), "x")
	}
	r.puts("live", "id", "x")
	rows := func(want string) {
		t.Helper()
		if got := r.do("SELECT count(*) FROM pending WHERE name = 'old'"); got != want {
			t.Errorf("%s rows, want %s", got, want)
		}
	}
	r.ages("old", storedriver.InboxLife-time.Minute)
	r.ages("live", storedriver.InboxLife-time.Minute)
	r.puts("live", "1", "x")
	rows("100")
	r.is(storedriver.Full)(r.Put(t.Context(), storedriver.Put{Session: "old", ID: "more"}))
	r.ages("old", time.Minute)
	if names, _ := r.inboxes(); strings.Join(names, " ") != "live" {
		t.Errorf("inboxes: %q", names)
	}
	for n := range 5 {
		r.puts("live", fmt.Sprint(2+n), "x")
	}
	rows("80")
	r.puts("old", "7", "again")
	rows("1")
	r.pends("old", "7")
	r.pends("live", "id 1 2 3 4 5 6")
	r.ages("live", time.Minute)
	r.pends("live", "1 2 3 4 5 6")
}

// A question outlives the row of its session, and is no use of the session. A row that a Put has made is removed
// as others are.
func TestExpiry_inbox_noUseOfSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{IdleTTL: time.Hour})
	r.saves("used", r.fence, 1, "x")
	r.later(30 * time.Minute)
	r.puts("used", "id", "x")
	r.puts("new", "id", "x")
	r.later(31 * time.Minute)
	if texts := r.texts("used"); len(texts) > 0 {
		t.Errorf("%q: the Put was a use", texts)
	}
	for _, wait := range []time.Duration{24 * time.Hour, time.Hour} {
		r.later(wait)
		for n := range int64(3) {
			r.saves("busy", time.Now().UnixMicro()+n, 1, "x")
		}
	}
	if names := r.do("SELECT string_agg(name, ' ') FROM session"); names != "busy" {
		t.Errorf("sessions: %s", names)
	}
	r.pends("used", "id")
	r.pends("new", "id")
	if names, _ := r.inboxes(); strings.Join(names, " ") != "new used" {
		t.Errorf("inboxes: %q", names)
	}
}

// A Put of another session waits for no expired question that another transaction has locked, and removes none at
// a stricter isolation.
func TestExpiry_inbox_waitsForNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.puts("old", "id", "x")
	r.ages("old", storedriver.InboxLife)
	unlock := r.locked("pending")
	r.puts("busy", "1", "x")
	unlock()
	left := func(want string) {
		t.Helper()
		if got := r.do("SELECT count(*) FROM pending WHERE name = 'old'"); got != want {
			t.Errorf("%s rows, want %s", got, want)
		}
	}
	tx := returned(r.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	returned(tx.Exec(t.Context(), "SELECT belugalock."+putOf("busy", "2")))(t)
	must(t, tx.Commit(t.Context()))
	left("1")
	r.puts("busy", "3", "x")
	left("0")
	r.pends("busy", "1 2 3")
}

// putOf is a call of put_v1.
func putOf(session, id string) string {
	return fmt.Sprintf("put_v1('session', '%s', 0, '%s', '%s', 'x', '24 hours', 100, 1000000)", session, id, storedriver.HashID(id))
}

// A question arrives after all others of its inbox, and after a wait for the row of the session.
func TestPut_O_arrivesLast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.puts("s", "1", "x")
	unlock := r.locked("session")
	var put sync.WaitGroup
	put.Go(func() { r.puts("s", "0", "x") })
	r.awaitLock()
	moment := r.do("SELECT clock_timestamp()")
	unlock()
	put.Wait()
	if late := r.do("SELECT max(arrived) > '" + moment + "' FROM pending"); late != "t" {
		t.Error("the question arrived before the Put had the row of the session")
	}
	r.ages("s", -time.Hour) // the clock was stepped back
	r.puts("s", "3", "x")
	r.puts("s", "2", "x")
	r.pends("s", "1 0 3 2")
}

// At each isolation of the role, Puts, lists and answers of one session at once have their outcome.
func TestPut_O_manyAtOnce(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		r := newRig(t)
		r.do(fmt.Sprintf("ALTER ROLE postgres IN DATABASE %s SET default_transaction_isolation = '%s'", r.db.Name(), level))
		r.reconnects()
		var all sync.WaitGroup
		for n := range int64(8) {
			all.Go(func() {
				r.puts("s", fmt.Sprint(n), "x")
				if _, items, err := r.Pending(t.Context(), storedriver.Access{Session: "s"}); err != nil || len(items) == 0 {
					t.Errorf("%s: %d items, %v", level, len(items), err)
				}
				if names, _ := r.inboxes(); len(names) != 1 {
					t.Errorf("%s: inboxes %q", level, names)
				}
			})
		}
		all.Wait()
		r.is(storedriver.Done)(r.Append(t.Context(), r.all("s", r.fence, 1, "0 1 2 3 4 5 7", "")))
		r.pends("s", "6")
	}
}

// At a stricter isolation, a Delete that has waited for a Put would leave the question. So it is undone, and repeated.
func TestPut_O_deleteThatWaited_undone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.saves("s", r.fence, 1, "x")
	r.behind("SELECT "+putOf("s", "id"), 0, func() {
		tx := returned(r.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err := tx.Exec(t.Context(), "SELECT FROM belugalock.session") // the snapshot of all tries
		must(t, err)
		of := (*pgconn.PgError)(nil)
		for range 100 { // on a busy machine, the wait for the row ends first
			err = pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `SELECT belugalock.replace_v1('session', 's', $1, 0, 0, 0, false, NULL, '{0,0}', 2,
					gen_random_uuid(), 'delete', '{0,0,0}', '{0,0,0}', '{0,0,0}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 1000)`, r.fence)
				return err
			})
			if !errors.As(err, &of) || of.Code != "55P03" {
				break
			}
		}
		if of == nil || of.Code != "40001" {
			t.Errorf("Delete: %v; want a serialization failure", err)
		}
	})
	r.pends("s", "id")
}

// While an Append waits for the row of the session, one of its IDs is closed.
func TestAppend_O_decidedWhileWaiting_conflict(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.saves("s", r.fence, 1, "x")
	r.behind(fmt.Sprintf("INSERT INTO known SELECT id, '%[1]s', 'infinity', '%[1]s', 11, 0 FROM session", storedriver.HashID("b")), 0, func() {
		r.is(storedriver.Conflict)(patiently(func() (storedriver.Verdict, error) {
			return r.Append(t.Context(), r.all("s", r.fence, 2, "a b", ""))
		}))
	})
}

// An ID that has expired is open, though its row is still there.
func TestAppend_O_idsExpired_stored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.is(storedriver.Done)(r.Append(t.Context(), r.all("s", r.fence, 1, "a b", "c")))
	r.do("UPDATE known SET until = now()")
	r.is(storedriver.Done)(r.Append(t.Context(), r.all("s", r.fence, 2, "b c", "a")))
	r.is(storedriver.Superseded)(r.Append(t.Context(), r.all("s", r.fence, 3, "a", "")))
}

// Many sessions have questions. Each call reads few rows of them.
func TestInbox_manyQuestions_fewRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d, touched := r.counting()
	r.do("ANALYZE")
	n := int64(0)
	calls := map[string]func(){
		"put": func() {
			r.is(storedriver.Done)(d.Put(t.Context(), storedriver.Put{Session: "s", ID: fmt.Sprint(n), Question: []byte("x")}))
		},
		"pending": func() {
			_, items, err := d.Pending(t.Context(), storedriver.Access{Session: "s"})
			if err != nil || len(items) > 2 {
				t.Errorf("%d items, %v", len(items), err)
			}
		},
		"inboxes": func() {
			if names, next, err := d.Inboxes(t.Context(), ""); err != nil || len(names) > 1000 {
				t.Errorf("%d names, %q, %v", len(names), next, err)
			}
		},
		"answer": func() {
			r.is(storedriver.Done)(d.Append(t.Context(), r.all("s", r.fence, n, fmt.Sprint(n-1), "")))
		},
		"close": func() {
			returned(d.Close(t.Context(), storedriver.CloseRequest{Session: "s", ID: storedriver.HashID(fmt.Sprint(n))}))(t)
		},
	}
	for _, many := range []bool{false, true} {
		for range 8 { // the plan may change after 5
			n += 2
			for _, call := range []struct {
				name string
				most int
			}{{"put", 20}, {"pending", 30}, {"inboxes", 5000}, {"answer", 60}, {"close", 30}} {
				calls[call.name]()
				if rows := touched(); many && rows > call.most {
					t.Errorf("%s: %d rows, want at most %d", call.name, rows, call.most)
				}
			}
		}
		if !many {
			r.do(`INSERT INTO pending SELECT 'session', 'of ' || g / 20, md5(g::text)::uuid, clock_timestamp(), '1', 'x'
					FROM generate_series(1, 40000) g;
				INSERT INTO known SELECT -g, md5(g::text)::uuid, now(), md5('')::uuid, 0, 0 FROM generate_series(1, 1000) g;
				INSERT INTO session (namespace, name) SELECT 'session', 'of ' || g FROM generate_series(1, 2000) g;
				SELECT pg_stat_force_next_flush()`)
			touched()
		}
	}
	names, pages := r.inboxes()
	if len(names) != 2001 || pages != 3 {
		t.Errorf("%d names on %d pages", len(names), pages)
	}
}

// A store of another namespace sees no question, and removes none.
func TestInbox_namespaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.puts("s", "id", "x")
	r.Driver = returned(pgstore.NewDriver(r.pool, &pgstore.Options{Retention: storedriver.Retention{Namespace: "other"}}))(t)
	r.pends("s", "")
	if names, _ := r.inboxes(); len(names) > 0 {
		t.Errorf("inboxes: %q", names)
	}
	r.puts("s", "2", "x")
	r.is(storedriver.Done)(r.Clear(t.Context(), storedriver.Clear{Write: r.write("s", r.fence, 1), Forget: true}))
	if left := r.do("SELECT string_agg(convert_from(message_id, 'UTF8'), ' ') FROM pending"); left != "id" {
		t.Errorf("left: %s", left)
	}
}
