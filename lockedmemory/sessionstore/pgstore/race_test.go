package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// patiently repeats a call that has waited for too long, as the store does.
func patiently(call func() (storedriver.Verdict, error)) (v storedriver.Verdict, err error) {
	for range 100 {
		if v, err = call(); !errors.Is(err, driver.ErrTemporary) {
			break
		}
	}
	return v, err
}

// behind makes a call that waits for another transaction, which has the row of the session and
// executes some SQL. It returns after the call.
func (r *rig) behind(sql string, pause time.Duration, call func()) {
	r.Helper()
	tx := returned(r.pool.Begin(r.Context()))(r)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err := tx.Exec(r.Context(), "SET LOCAL search_path = belugalock")
	must(r, err)
	_, err = tx.Exec(r.Context(), "SELECT FROM session FOR UPDATE")
	must(r, err)
	if sql != "" {
		_, err = tx.Exec(r.Context(), sql)
		must(r, err)
	}
	var waits sync.WaitGroup
	waits.Go(call)
	r.awaitLock()
	time.Sleep(pause)
	must(r, tx.Commit(r.Context()))
	waits.Wait()
}

// awaitLock returns when a call waits for another transaction.
func (r *rig) awaitLock() {
	r.Helper()
	servers.Await(r, 15*time.Second, "a call that waits", func() bool {
		return r.do("SELECT count(*) FROM pg_stat_activity "+
			"WHERE wait_event_type = 'Lock' AND datname = current_database()") == "1"
	})
}

// While a call waits for the row of the session, a later lease raises the mark. The call is stale,
// at every isolation level.
func TestAppend_S2_markRaisedWhileWaiting_stale(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		r := newRig(t)
		r.do(fmt.Sprintf("ALTER DATABASE %s SET default_transaction_isolation = '%s'", r.db.Name(), level))
		r.Driver = returned(pgstore.NewDriver(connect(t, r.db.URL()), nil))(t)
		r.saves("s", r.fence, 1, "x")
		for what, call := range map[string]func() (storedriver.Verdict, error){
			"Save": func() (storedriver.Verdict, error) {
				return r.Append(t.Context(), storedriver.Append{Write: r.write("s", r.fence, 2), Content: content("y")})
			},
			"first Save": func() (storedriver.Verdict, error) {
				return r.Append(t.Context(), storedriver.Append{Write: r.write("s", r.fence, 1), Content: content("y")})
			},
			"Clear": func() (storedriver.Verdict, error) {
				return r.Clear(t.Context(), storedriver.Clear{Write: r.write("s", r.fence, 3)})
			},
			"Load": func() (storedriver.Verdict, error) { return r.shows("s", r.fence) },
			"answer to several": func() (storedriver.Verdict, error) {
				return r.Append(t.Context(), r.all("s", r.fence, 4, "a b", "c"))
			},
			"list": func() (storedriver.Verdict, error) {
				v, _, err := r.Pending(t.Context(), r.write("s", r.fence, 1).Access)
				return v, err
			},
		} {
			r.do(fmt.Sprintf("UPDATE session SET fence = %d, op = NULL; UPDATE exchange SET op = NULL", r.fence))
			r.behind(fmt.Sprintf("UPDATE session SET fence = %d", r.fence+1), 0, func() {
				if v, err := patiently(call); err != nil || v.Outcome != storedriver.Stale || v.Mark.Fence != r.fence+1 {
					t.Errorf("%s: %s: %+v, %v", level, what, v, err)
				}
			})
		}
		if got := r.texts("s"); len(got) != 1 {
			t.Errorf("%s: %q", level, got)
		}
	}
}

// While a call waits for the row of the session, the session expires.
func TestAppend_O_expiredWhileWaiting_gone(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{IdleTTL: time.Second})
	r.saves("s", r.fence, 1, "x")
	w := r.write("s", r.fence, 2)
	w.FirstAccess, w.HistoryUpTo = true, lockedmemory.Place{Fence: r.fence, N: 1}
	r.do("UPDATE session SET kept_until = clock_timestamp() + interval '300 ms'")
	r.behind("", 350*time.Millisecond, func() {
		r.is(storedriver.Gone)(patiently(func() (storedriver.Verdict, error) {
			return r.Append(t.Context(), storedriver.Append{Write: w, Content: content("y")})
		}))
	})
}

// A Clear explains that earlier exchanges have disappeared, and no later ones.
func TestAppend_O_clearedBefore_gone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.is(storedriver.Done)(r.Clear(t.Context(), storedriver.Clear{Write: r.write("s", r.fence, 1)}))
	needs := func(fence, n int64) (storedriver.Verdict, error) {
		w := r.write("s", fence, n)
		w.HistoryUpTo = lockedmemory.Place{Fence: fence}
		return r.Append(t.Context(), storedriver.Append{Write: w, Content: content("x")})
	}
	r.is(storedriver.Gone)(needs(r.fence+1, 1))
	r.is(storedriver.Done)(needs(r.fence, 2))
}

// Several leases begin a new session at once. Each call has its outcome, and the exchanges are in
// order.
func TestAppend_O_newSession_manyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for session := range 10 {
		name := fmt.Sprint(session)
		var all sync.WaitGroup
		for n := range int64(8) {
			all.Go(func() {
				v, err := r.Append(t.Context(), storedriver.Append{Write: r.write(name, r.fence+n, 1), Content: content(fmt.Sprint(n))})
				if err != nil || v.Outcome != storedriver.Done && v.Outcome != storedriver.Stale {
					t.Errorf("%+v, %v", v, err)
				}
			})
		}
		all.Wait()
		texts := r.texts(name)
		if len(texts) == 0 || texts[len(texts)-1] != "7" {
			t.Errorf("%q", texts)
		}
	}
	if wrong := r.do(`SELECT count(*) FROM session s
		WHERE exchanges <> (SELECT count(*) FROM exchange WHERE session = s.id)`); wrong != "0" {
		t.Errorf("%s sessions have a wrong count", wrong)
	}
}

// When the sub-places are used up, by new exchanges or by those behind them, a Replace changes nothing.
func TestReplace_O_subPlacesUsedUp_refused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.saves("s", r.fence, 1, "x")
	n := int64(1)
	replace := func(exchanges int, want storedriver.Outcome) {
		t.Helper()
		page := returned(r.Read(t.Context(), storedriver.Read{Access: storedriver.Access{Session: "s"}, Limit: 1}))(t)
		at := page.Entries[0].Place
		n++
		w := storedriver.Replace{Write: r.write("s", r.fence, n), From: at, To: at}
		for range exchanges {
			e := storedriver.Entry{Place: lockedmemory.Place{Fence: at.Fence, N: at.N}, Messages: [][]byte{{'y'}}}
			w.New = append(w.New, e)
		}
		const exchange = "SELECT string_agg(e::text, '' ORDER BY sub) FROM exchange e"
		before := r.do(exchange)
		r.is(want)(r.Replace(t.Context(), w))
		if changed := before != r.do(exchange); changed != (want == storedriver.Done) {
			t.Errorf("%d exchanges: changed %t", exchanges, changed)
		}
	}
	replace(3, storedriver.Done)
	r.do(fmt.Sprint("UPDATE session SET revision = ", lockedmemory.MaxSub-2))
	replace(3, storedriver.Full)
	replace(1, storedriver.Full) // two more are moved
	r.do("UPDATE session SET revision = revision - 1")
	replace(1, storedriver.Done)
	r.do(fmt.Sprint("UPDATE session SET revision = ", lockedmemory.MaxSub))
	n++
	r.is(storedriver.Done)(r.Clear(t.Context(), storedriver.Clear{Write: r.write("s", r.fence, n)}))
	n++
	r.is(storedriver.Done)(r.Append(t.Context(), storedriver.Append{Write: r.write("s", r.fence, n), Content: content("x")}))
	replace(3, storedriver.Done)
}

// A name that PostgreSQL cannot have is refused, nothing is written, and the error shows no part of the name.
func TestSession_oddNames(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, name := range []string{"a\x00b", "\xff", "\xf0\x41bc"} {
		_, err := r.Append(t.Context(), storedriver.Append{Write: r.write(name, r.fence, 1), Content: content("x")})
		_, err2 := r.Clear(t.Context(), storedriver.Clear{Write: r.write(name, r.fence, 1)})
		_, err3 := r.Read(t.Context(), storedriver.Read{Access: storedriver.Access{Session: name}, Limit: 1})
		_, _, err4 := r.Sessions(t.Context(), name)
		_, err5 := r.Close(t.Context(), storedriver.CloseRequest{Session: name})
		_, err6 := r.Append(t.Context(), r.all(name, r.fence, 1, "a b", ""))
		_, err7 := r.Put(t.Context(), storedriver.Put{Session: name, ID: "id"})
		_, _, err8 := r.Pending(t.Context(), storedriver.Access{Session: name})
		_, _, err9 := r.Inboxes(t.Context(), name)
		for _, err := range []error{err, err2, err3, err4, err5, err6, err7, err8, err9} {
			if !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) {
				t.Errorf("%q: %v", name, err)
			}
			if strings.Contains(err.Error(), "0x") {
				t.Errorf("%q: the error shows bytes of the name: %v", name, err)
			}
		}
	}
}
