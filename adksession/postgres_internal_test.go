package adksession

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/adk/v2/session"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// statements counts the statements that call a function for a lock or a session. A sweep comes when it likes.
var statements calls

type calls struct{ atomic.Int64 }

func (c *calls) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	is := func(name string) bool { return strings.Contains(data.SQL, name) }
	if is("_v1") && !is("version_v1") && !is("sweep_v1") {
		c.Add(1)
	}
	return ctx
}

func (*calls) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url + "&pool_max_conns=16")
	must(t, err)
	config.ConnConfig.Tracer = &statements
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func storeOf(t testing.TB, url, namespace string) *postgresStore {
	t.Helper()
	return &postgresStore{postgres.Over("adksession", connect(t, url), schema), storedriver.Retention{Namespace: namespace}}
}

// operations are one request of each kind, in an order in which all are done.
func operations(of id, key string) []request {
	return []request{{operation: opCreate, id: of, op: "b"}, {operation: opGet, id: of, token: 1, recent: 1},
		{operation: opGet, id: of, recent: 1}, {operation: opGet, id: id{app: of.app, user: of.user}},
		{operation: opAppend, id: of, last: "b", op: "1", event: []byte("{}"), state: map[string]string{"user:" + key: "1"}},
		{operation: opStop, id: of, token: 1}, {operation: opDelete, id: of}}
}

// database makes a database with the tables of locks and sessions.
func database(t testing.TB) *servers.PostgresDatabase {
	t.Helper()
	db := servers.SharedPostgres(t).NewDatabase(t)
	pool, err := pgxpool.New(t.Context(), db.URL())
	must(t, err)
	defer pool.Close()
	must(t, errors.Join(pglock.Migrate(t.Context(), pool, nil), Migrate(t.Context(), pool, nil), Migrate(t.Context(), pool, nil)))
	return db
}

// sql runs statements with the tables in their path.
func (r *rig) sql(t testing.TB, format string, args ...any) string {
	t.Helper()
	rows, err := r.db.Do("SET search_path = belugalock; " + fmt.Sprintf(format, args...))
	must(t, err)
	return rows
}

// The rules of all stores.
func TestPostgres(t *testing.T) {
	inPostgres = database(t)
	defer func() { inPostgres = nil }()
	for name, test := range map[string]func(*testing.T){
		"Append_handleAhead": TestAppend_handleAhead,
		"Append_answerLost":  TestAppend_answerLost, "Append_answerLost_othersSince": TestAppend_answerLost_othersSince,
		"Append_lateCopy": TestAppend_lateCopy, "Append_lateCopy_sameToken": TestAppend_lateCopy_sameToken,
		"Append_leaseLostMeanwhile": TestAppend_leaseLostMeanwhile, "Append_scopes": TestAppend_scopes,
		"Append_badInput": TestAppend_badInput, "Append_afterFailure": TestAppend_afterFailure,
		"Event_allFieldsReturn": TestEvent_allFieldsReturn,
		"Get_filters":           TestGet_filters, "Get_again_placeDiffers": TestGet_again_placeDiffers,
		"Get_locksFlushed": TestGet_locksFlushed, "Get_evicted": TestGet_evicted_refused, "Get_lostLock_noToken": TestGet_lostLock_noToken,
		"Create_exists": TestCreate_exists, "Delete_inRun": TestDelete_inRun,
		"Delete_answerLost_notRepeated": TestDelete_answerLost_notRepeated, "List_order": TestList_order,
		"Run_nested": TestRun_nested, "Run_autoCreate": TestRun_autoCreate, "Confirmation_thrice": TestConfirmation_thrice,
		"LockREST_twoInstances": TestLockREST_twoInstances, "IdleTTL_passes": TestIdleTTL_passes,
		"Stop_run": TestStop_run, "Stop_noRun": TestStop_noRun, "Stop_lateCopy": TestStop_lateCopy,
		"Stop_tokenRaised": TestStop_tokenRaised, "Stop_again": TestStop_again, "Stop_leaseLost": TestStop_leaseLost,
		"Stop_autoCreate": TestStop_autoCreate,
	} {
		t.Run(name, test)
	}
}

// behind makes a call that waits for another transaction, which has done some SQL. That one commits once
// ready is true.
func (r *rig) behind(t testing.TB, sql, ready string, call func()) {
	t.Helper()
	tx, err := connect(t, r.db.URL()).Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL search_path = belugalock; "+sql)
	must(t, err)
	var waits sync.WaitGroup
	waits.Go(call)
	servers.Await(t, 15*time.Second, "a call that waits, and "+ready, func() bool {
		return r.sql(t, `SELECT %s AND 1 = (SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND datname = current_database())`, ready) == "t"
	})
	must(t, tx.Commit(t.Context()))
	waits.Wait()
}

// An older holder appends while a Get under the next lease waits for the row: the Get has the event, at
// every isolation level. Then the older one is stale.
func TestPostgres_leasedGet_raisesMarkBeforeItReads(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		db := database(t)
		_, err := db.Do(fmt.Sprintf("ALTER DATABASE %s SET default_transaction_isolation = '%s'", db.Name(), level))
		must(t, err)
		r := newRig(t, db)
		h := r.create(t)
		must(t, r.AppendEvent(t.Context(), h, event("1")))
		older := r.faulty.seen[len(r.faulty.seen)-1]
		var got int
		r.under(t, func(ctx context.Context) {
			text := strings.ReplaceAll(older.record(), "'", "''")
			r.behind(t, "UPDATE adk_session SET n = n + 1, op = 'late'; INSERT INTO adk_event SELECT id, n - 1, '"+text+"' FROM adk_session",
				"true", func() { got = r.must(t, ctx).Events().Len() })
		})
		if got != 2 {
			t.Errorf("%s: the Get has %d events, want 2", level, got)
		}
		older.last, older.op = "late", "later"
		if got, err := r.faulty.store.do(t.Context(), older); err != nil || got.outcome != stale {
			t.Errorf("%s: the older holder: %d, %v", level, got.outcome, err)
		}
	}
}

// A session that expires while an append waits for its row is gone.
func TestPostgres_expiredWhileWaiting(t *testing.T) {
	r := newRig(t, database(t), Options{IdleTTL: time.Hour})
	h := r.create(t)
	r.sql(t, "UPDATE adk_session SET expires = clock_timestamp() + interval '300 ms'")
	r.behind(t, "SELECT FROM adk_session FOR UPDATE", "(SELECT expires < clock_timestamp() FROM adk_session)", func() {
		wantError(t, "the append", r.AppendEvent(t.Context(), h, event("1")), ErrNotFound)
	})
	if records, _ := r.stored(t); records != 0 {
		t.Error("the event was stored")
	}
}

func (r *rig) expires(t testing.TB, in string) {
	t.Helper()
	r.sql(t, "UPDATE adk_session SET expires = clock_timestamp() + interval '%s'", in)
}

// An append keeps a session, and a read does not. A Service without IdleTTL takes the expiry away.
func TestPostgres_idleTTL(t *testing.T) {
	r := newRig(t, database(t), Options{IdleTTL: time.Hour})
	moved := func() bool {
		return r.sql(t, "SELECT expires > clock_timestamp() + interval '59 min' FROM adk_session") == "t"
	}
	h := r.create(t)
	r.expires(t, "1 min")
	if r.must(t, t.Context()); moved() {
		t.Error("a read without a lease moves the expiry")
	}
	if must(t, r.AppendEvent(t.Context(), h, event("1"))); !moved() {
		t.Error("an append does not move the expiry")
	}
	forever, err := NewPostgres(connect(t, r.db.URL()), r.locker, &Options{Namespace: r.ns})
	must(t, err)
	found, err := forever.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "session"})
	must(t, err)
	must(t, forever.AppendEvent(t.Context(), found.Session, event("3")))
	if got := r.sql(t, "SELECT expires FROM adk_session"); got != "infinity" {
		t.Errorf("the session expires at %s", got)
	}
}

// contends runs 8 writers in a database that finds each deadlock soon, and wants none.
func contends(t *testing.T, write func(do func(request) reply, writer int)) {
	t.Helper()
	db := database(t)
	_, err := db.Do("ALTER DATABASE " + db.Name() + " SET deadlock_timeout = '20ms'")
	must(t, err)
	pool := connect(t, db.URL())
	store := &postgresStore{postgres.Over("adksession", pool, schema), storedriver.Retention{Namespace: "adk"}}
	do := func(q request) (a reply) {
		err := driver.ErrTemporary
		for errors.Is(err, driver.ErrTemporary) {
			a, err = store.do(context.Background(), q)
		}
		if err != nil {
			t.Error(err)
		}
		return a
	}
	began := time.Now()
	var writers sync.WaitGroup
	for writer := range 8 {
		writers.Go(func() {
			for i := 0; i < 40 && time.Since(began) < 5*time.Second; i++ { // deadlocks take their time
				write(do, writer)
			}
		})
	}
	writers.Wait()
	pool.Close() // a connection counts its deadlocks when it ends
	servers.Await(t, 15*time.Second, "the end of the connections", func() bool {
		n, err := db.Do("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
		return err == nil && n == "1"
	})
	if n, err := db.Do("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); err != nil || n != "0" {
		t.Errorf("%s deadlocks, %v", n, err)
	}
}

func named(name string) id { return id{"app", "user", name} }

// Writers of several sessions write the same keys of their user.
func TestPostgres_sharedKeys_noDeadlock(t *testing.T) {
	service, values := &Service{opts: Options{MaxEvent: 1 << 20}}, make(map[string]any)
	for i := range 20 {
		values[fmt.Sprintf("user:%d", i)] = i
	}
	contends(t, func(do func(request) reply, writer int) {
		of := named(fmt.Sprint(writer))
		at := do(request{operation: opGet, id: of, recent: 1})
		if at.outcome == missing {
			at = do(request{operation: opCreate, id: of, op: crand.Text()})
		}
		_, state, err := service.encode(&session.Event{Actions: session.EventActions{StateDelta: values}}) // anew
		if a := do(request{operation: opAppend, id: of, last: at.op, op: crand.Text(), event: []byte("{}"), state: state}); err != nil || a.outcome != done {
			t.Errorf("outcome %d, %v", a.outcome, err)
		}
	})
}

// Appends, Deletes and Creates of one session.
func TestPostgres_deleteBesideAppend_noDeadlock(t *testing.T) {
	state := map[string]string{"k": "1"}
	contends(t, func(do func(request) reply, writer int) {
		if writer%4 == 0 {
			do(request{operation: opDelete, id: named("s")})
		}
		at := do(request{operation: opGet, id: named("s"), recent: 1})
		if at.outcome == missing {
			do(request{operation: opCreate, id: named("s"), op: crand.Text(), state: state})
			return
		}
		do(request{operation: opAppend, id: named("s"), last: at.op, op: crand.Text(), event: []byte("{}"), state: state})
	})
}

// A Create that waits for its name has changed no row yet: not that of another name, whose Create might
// wait for this one.
func TestPostgres_create_waitsBeforeItSweeps(t *testing.T) {
	r := newRig(t, database(t), Options{IdleTTL: time.Hour})
	for _, r.id.name = range []string{"other", "mine"} {
		r.create(t)
	}
	r.expires(t, "-1 s")
	r.behind(t, "SELECT FROM adk_session WHERE name = 'mine' FOR UPDATE",
		"EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_xid IS NULL)", func() { r.create(t) })
	if left := r.sql(t, "SELECT string_agg(name, ' ') FROM adk_session"); left != "mine" {
		t.Errorf("the sessions are %s", left)
	}
}

// A Create removes expired sessions, of each namespace, with all that they have.
func TestPostgres_create_sweeps(t *testing.T) {
	r := newRig(t, database(t), Options{IdleTTL: time.Hour})
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		r.id.name = name
		must(t, r.AppendEvent(t.Context(), r.create(t), event("1", "k", "v", "user:k", "v")))
	}
	r.expires(t, "-1 s")
	r.sql(t, `UPDATE adk_session SET namespace = 'other'; UPDATE adk_state SET namespace = 'other';
		UPDATE adk_session SET expires = expires - interval '1 s' WHERE name = '1';
		INSERT INTO adk_event SELECT id, g, '{}' FROM adk_session, generate_series(1, 9) g WHERE name = '1'`)
	for i, want := range []string{"2|1|2", "2|0|1"} { // with the key of the user
		r.id.name = fmt.Sprint("new", i)
		r.create(t)
		if got := r.sql(t, `SELECT (SELECT count(*) FROM adk_session), (SELECT count(*) FROM adk_event),
			(SELECT count(*) FROM adk_state)`); got != want {
			t.Errorf("sessions, events and keys: %s, want %s", got, want)
		}
	}
}

// A role needs EXECUTE alone. Without it, it can call nothing.
func TestPostgres_rights(t *testing.T) {
	r := newRig(t, database(t))
	var longest strings.Builder // an index compresses what repeats
	for longest.Len() < maxStateKey {
		longest.WriteString(crand.Text())
	}
	name := longest.String()[:128]
	all := func(url string) (err error) {
		store := storeOf(t, url, name)
		for _, q := range operations(id{name, name, name}, longest.String()[:maxStateKey-len("user:")]) {
			_, one := store.do(t.Context(), q)
			err = errors.Join(err, one)
		}
		return err
	}
	r.sql(t, "CREATE ROLE adk_program LOGIN PASSWORD 'p'; GRANT USAGE ON SCHEMA belugalock TO adk_program")
	t.Cleanup(func() { r.sql(t, "DROP OWNED BY adk_program; DROP ROLE adk_program") })
	url := strings.Replace(r.db.URL(), "postgres@", "adk_program:p@", 1)
	wantError(t, "without EXECUTE", all(url), driver.ErrRights)
	if public := r.sql(t, `SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'belugalock'::regnamespace
		AND (proacl IS NULL OR proacl::text LIKE '%%,=X%%' OR proacl::text LIKE '{=X%%')`); public != "" {
		t.Errorf("every role may call %s", public)
	}
	r.sql(t, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO adk_program")
	must(t, all(url))
	empty := strings.Replace(servers.SharedPostgres(t).NewDatabase(t).URL(), "postgres@", "adk_program:p@", 1)
	if err := all(empty); !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "adksession.Migrate") {
		t.Errorf("without the schema: %v", err)
	}
	wantError(t, "Migrate without CREATE", Migrate(t.Context(), connect(t, empty), nil), distlock.ErrRefused)
	wantError(t, "Migrate without a pool", Migrate(t.Context(), nil, nil), distlock.ErrInvalidOption)
	_, err := NewPostgres(nil, r.locker, nil)
	wantError(t, "NewPostgres without a pool", err, distlock.ErrInvalidOption)
}

// A standby may lack acknowledged events, so it answers nothing.
func TestPostgres_standby_temporary(t *testing.T) {
	pair := servers.StartPostgresPair(t, false)
	db := pair.Primary.NewDatabase(t)
	must(t, Migrate(t.Context(), connect(t, db.URL()), nil))
	pair.AwaitStandby()
	store := storeOf(t, pair.Standby.URL(db.Name()), "adk")
	for _, q := range operations(named("s"), "k") {
		if a, err := store.do(t.Context(), q); !errors.Is(err, driver.ErrTemporary) || driver.MayHaveEffect(err) {
			t.Errorf("operation %s, token %d: %+v, %v", q.operation, q.token, a, err)
		}
	}
}

// What a call has written is durable before its answer, also where the database does not want that.
func TestPostgres_durable(t *testing.T) {
	r := newRig(t, database(t))
	r.sql(t, `CREATE TABLE log (setting text);
		CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO belugalock.log VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER log AFTER INSERT OR UPDATE OR DELETE ON adk_session DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION log();
		ALTER DATABASE %s SET synchronous_commit = off`, r.db.Name())
	store := storeOf(t, r.db.URL(), r.ns)
	for _, q := range operations(r.id, "k") {
		a, err := store.do(t.Context(), q)
		must(t, err)
		writes := q.token > 0 || q.operation != opGet
		if got := r.sql(t, "SELECT string_agg(DISTINCT setting, ' ') FROM log"); writes && got != "on" || !writes && got != "" || a.outcome != done {
			t.Errorf("operation %s: outcome %d, synchronous_commit = %s", q.operation, a.outcome, got)
		}
		r.sql(t, "DELETE FROM log")
	}
}

// All calls pass a pooler that gives each to another connection, also without descriptions of statements.
func TestPostgres_pgBouncer(t *testing.T) {
	db := database(t)
	pooled := servers.StartPgBouncer(t, servers.SharedPostgres(t), "transaction").URL(db.Name())
	for _, mode := range []string{"", "&default_query_exec_mode=exec&statement_cache_capacity=0&description_cache_capacity=0"} {
		store := storeOf(t, pooled+mode, "adk")
		for _, q := range operations(named("s"), "k") {
			if a, err := store.do(t.Context(), q); err != nil || a.outcome != done {
				t.Errorf("operation %s: outcome %d, %v", q.operation, a.outcome, err)
			}
		}
	}
}

// A call touches few rows of large tables, also if the server has planned its statements for small ones.
func TestPostgres_largeTables_fewRows(t *testing.T) {
	r := newRig(t, database(t))
	pool := connect(t, r.db.URL())
	store := &postgresStore{postgres.Over("adksession", pool, schema), storedriver.Retention{Namespace: r.ns}}
	touched := func() (rows int) {
		_, err := pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
		must(t, err)
		must(t, pool.QueryRow(t.Context(), "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables WHERE relname LIKE 'adk%'").Scan(&rows))
		return rows
	}
	must(t, r.AppendEvent(t.Context(), r.create(t), event("1", "k", "v")))
	r.sql(t, "ANALYZE") // else the server takes new tables for larger ones
	last, state := r.must(t, t.Context()).(*handle).op, map[string]string{"app:k": "1", "k": "1"}
	for round := range 2 {
		for i := range 8 {
			op := fmt.Sprint(round, i)
			for _, q := range []request{{operation: opAppend, last: last, op: op, token: math.MaxInt64, event: []byte("{}"), state: state},
				{operation: opGet, recent: 5}, {operation: opGet, recent: 5, token: math.MaxInt64}, {operation: opGet},
				{operation: opStop, token: math.MaxInt64}, {operation: opCreate, op: "b"}} {
				q.id = r.id
				if q.operation == opCreate {
					q.name = op
				} else if q.operation == opGet && q.recent == 0 {
					q.user, q.name = "other", ""
				}
				before := touched()
				a, err := store.do(t.Context(), q)
				if rows := touched() - before; err != nil || a.outcome != done || rows > 60 {
					t.Errorf("operation %s, token %d: outcome %d, %v, %d rows", q.operation, q.token, a.outcome, err, rows)
				}
			}
			last = op
		}
		if round == 0 {
			r.sql(t, `INSERT INTO adk_session (namespace, app, usr, name, op, mark, expires)
					SELECT '%[1]s', 'app', 'user', g || 'x', g, 0, 'infinity' FROM generate_series(1, 3000) g;
				INSERT INTO adk_event SELECT id, g, '{}' FROM adk_session, generate_series(100, 2999) g WHERE name = 'session';
				UPDATE adk_session SET n = 3000 WHERE name = 'session';
				INSERT INTO adk_state SELECT '%[1]s', 'app', 's-' || g, g, '1' FROM generate_series(1, 3000) g;
				SELECT pg_stat_force_next_flush()`, r.ns)
		}
	}
}
