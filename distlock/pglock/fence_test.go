package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// scene is a database of an application, with two Lockers of one backend.
type scene struct {
	t        *testing.T
	database *servers.PostgresDatabase
	pool     *pgxpool.Pool
	locks    driver.Driver
	lockers  [2]*distlock.Locker
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := emptyScene(t)
	must(t, pglock.MigrateFence(t.Context(), s.pool, nil))
	s.open(memlock.NewDriver())
	return s
}

// emptyScene is a scene without marks and locks. Tests with a scene run at the same time.
func emptyScene(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	s := &scene{t: t, database: servers.SharedPostgres(t).NewDatabase(t)}
	s.pool = newPool(t, s.database.URL()+"&pool_max_conns=20")
	s.do("CREATE TABLE account (balance bigint, token bigint); INSERT INTO account VALUES (0, 0)")
	return s
}

func (s *scene) open(locks driver.Driver) {
	s.locks = locks
	for i := range s.lockers {
		locker, err := distlock.New(s.locks,
			&distlock.Options{Namespace: "shop", Logger: slog.New(slog.DiscardHandler)})
		must(s.t, err)
		s.t.Cleanup(func() { _ = locker.Close(context.Background()) })
		s.lockers[i] = locker
	}
}

// do sends SQL, and returns its rows.
func (s *scene) do(sql string) string {
	s.t.Helper()
	return do(s.t, s.database, sql)
}

func (s *scene) acquire(key string, opts ...distlock.CallOption) *distlock.Lease {
	s.t.Helper()
	lease, err := s.lockers[0].Acquire(s.t.Context(), key, opts...)
	must(s.t, err)
	return lease
}

// takeOver returns the lease of the next holder. The one before does not know.
func (s *scene) takeOver(lease *distlock.Lease) *distlock.Lease {
	s.t.Helper()
	name := driver.Name{Namespace: "shop", Key: lease.Key()}
	broken, err := s.locks.(driver.Breaker).Break(s.t.Context(), name, lease.Fence())
	if err != nil || !broken {
		s.t.Fatal("break:", broken, err)
	}
	next, err := s.other(lease).Acquire(s.t.Context(), lease.Key())
	must(s.t, err)
	if next.Fence() <= lease.Fence() {
		s.t.Fatalf("token %d after %d", next.Fence(), lease.Fence())
	}
	return next
}

// other is the Locker that a lease is not of.
func (s *scene) other(lease *distlock.Lease) *distlock.Locker {
	if fencing.Locker(lease) == s.lockers[0] {
		return s.lockers[1]
	}
	return s.lockers[0]
}

func (s *scene) begin(opts pgx.TxOptions) pgx.Tx {
	s.t.Helper()
	tx, err := s.pool.BeginTx(s.t.Context(), opts)
	must(s.t, err)
	s.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// fence begins a fenced transaction.
func (s *scene) fence(leases ...*distlock.Lease) pgx.Tx {
	s.t.Helper()
	tx := s.begin(pgx.TxOptions{})
	must(s.t, pglock.Fence(within(s.t, 10*time.Second), tx, leases...))
	return tx
}

func (s *scene) exec(tx pgx.Tx, sql string, args ...any) {
	s.t.Helper()
	must(s.t, second(tx.Exec(s.t.Context(), sql, args...)))
}

func (s *scene) commit(tx pgx.Tx) {
	s.t.Helper()
	must(s.t, tx.Commit(s.t.Context()))
}

func (s *scene) isMark(lease *distlock.Lease) {
	s.t.Helper()
	mark := s.do("SELECT token FROM belugalock.mark WHERE namespace = 'shop' AND key = '" + lease.Key() + "'")
	if mark != fmt.Sprint(lease.Fence()) {
		s.t.Errorf("the mark is %s, want %d", mark, lease.Fence())
	}
}

// within is the context of a step that would wait for long if the test failed.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// awaitBlocked waits until a session waits for a lock of the server.
func (s *scene) awaitBlocked() {
	s.t.Helper()
	servers.Await(s.t, 10*time.Second, "a session waits", func() bool {
		return s.do("SELECT count(*) FROM pg_stat_activity "+
			"WHERE datname = current_database() AND wait_event_type = 'Lock'") == "1"
	})
}

// transaction is one of pgx or of database/sql.
type transaction struct {
	fence  func(...*distlock.Lease) error
	exec   func(statement string) error
	commit func() error
}

// onFaces tests Fence and FenceSQL.
func onFaces(t *testing.T, test func(*scene, transaction)) {
	t.Run("pgx", func(t *testing.T) {
		s, ctx := newScene(t), t.Context()
		tx := s.begin(pgx.TxOptions{})
		test(s, transaction{
			fence:  func(leases ...*distlock.Lease) error { return pglock.Fence(ctx, tx, leases...) },
			exec:   func(statement string) error { _, err := tx.Exec(ctx, statement); return err },
			commit: func() error { return tx.Commit(ctx) },
		})
	})
	t.Run("database_sql", func(t *testing.T) {
		s, ctx := newScene(t), t.Context()
		db := stdlib.OpenDBFromPool(s.pool)
		defer db.Close()
		tx, err := db.BeginTx(ctx, nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		test(s, transaction{
			fence:  func(leases ...*distlock.Lease) error { return pglock.FenceSQL(ctx, tx, leases...) },
			exec:   func(statement string) error { _, err := tx.ExecContext(ctx, statement); return err },
			commit: tx.Commit,
		})
	})
}

func TestFence_S2_staleLeaseCannotCommit(t *testing.T) {
	onFaces(t, func(s *scene, tx transaction) {
		paused := s.acquire("k")
		next := s.takeOver(paused)
		s.commit(s.fence(next))
		if err := paused.Err(); err != nil {
			s.t.Fatalf("this tests nothing: %v", err)
		}

		err := tx.fence(paused)
		if !errors.Is(err, distlock.ErrLost) || strings.Contains(err.Error(), "shop") {
			s.t.Errorf("stale fence: %v", err)
		}
		if tx.exec("UPDATE account SET balance = 1") == nil || tx.commit() == nil {
			s.t.Error("the transaction goes on")
		}
		if balance := s.do("SELECT balance FROM account"); balance != "0" {
			s.t.Errorf("the stale transaction has stored %s", balance)
		}
		s.isMark(next)
	})
}

func TestFence_S2_sameLeaseAgain(t *testing.T) {
	onFaces(t, func(s *scene, tx transaction) {
		lease := s.acquire("k")
		s.commit(s.fence(lease))
		err := errors.Join(tx.fence(lease), tx.exec("UPDATE account SET balance = balance + 1"), tx.commit())
		must(s.t, err)
		s.isMark(lease)
	})
}

// The refused Fence has sent no statement: the next one is the first.
func TestFence_N_endedLeaseSendsNothing(t *testing.T) {
	s := newScene(t)
	ended, held := s.acquire("ended"), s.acquire("held")
	must(t, ended.Release(t.Context()))
	tx := s.begin(pgx.TxOptions{})
	for _, leases := range [][]*distlock.Lease{{}, {nil}, {ended}, {held, ended}} {
		if err := pglock.Fence(t.Context(), tx, leases...); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("%d leases: %v", len(leases), err)
		}
	}
	must(t, pglock.Fence(t.Context(), tx, held))
}

func TestFence_S2_misplacedIsRefused(t *testing.T) {
	s := newScene(t)
	for name, before := range map[string]string{
		"read":      "SELECT balance FROM account",
		"write":     "UPDATE account SET balance = 1",
		"cursor":    "DECLARE c CURSOR FOR SELECT balance FROM account",
		"savepoint": "SAVEPOINT s",
		// The read lasts longer than its savepoint: in the memory of the application.
		"readInSavepoint": "SAVEPOINT s; SELECT balance FROM account; ROLLBACK TO s; RELEASE s",
		"fence":           "SELECT belugalock.fence_v1('{73}', '{6b}', '{1}', 1000)",
		"settings":        "SET LOCAL application_name = 'a'; SAVEPOINT s; RELEASE s", // they read nothing
	} {
		t.Run(name, func(t *testing.T) {
			lease, tx := s.acquire(name), s.begin(pgx.TxOptions{})
			must(t, second(tx.Conn().PgConn().Exec(t.Context(), before).ReadAll()))
			err := pglock.Fence(t.Context(), tx, lease)
			if name == "settings" {
				must(t, err)
				return
			}
			if !errors.Is(err, pglock.ErrMisplaced) || errors.Is(err, distlock.ErrLost) {
				t.Error(err)
			}
			if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
				t.Errorf("commit: %v", err)
			}
		})
	}
}

// Names are data under all settings of a connection.
func TestFence_strangeNames(t *testing.T) {
	s := newScene(t)
	pool := newPool(t, s.database.URL()+"&standard_conforming_strings=off&client_encoding=LATIN1")
	for _, key := range []string{`a'b`, `"}{`, `\`, "$1", "-- ", "é ", "NULL", strings.Repeat("k", 1024)} {
		lease := s.acquire(key)
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pglock.Fence(t.Context(), tx, lease) })
		if err != nil {
			t.Errorf("%q: %v", key, err)
		}
		var mark int64
		err = s.pool.QueryRow(t.Context(), "SELECT token FROM belugalock.mark WHERE key = $1", key).Scan(&mark)
		if err != nil || mark != lease.Fence() {
			t.Errorf("%q: the mark is %d, %v", key, mark, err)
		}
	}
}

// A transaction that has taken its snapshot before the end of another fenced one fails, also under
// the same token. The repetition of the whole transaction succeeds.
func TestFence_S2_repeatableReadConflict(t *testing.T) {
	s := newScene(t)
	lease := s.acquire("k")
	s.commit(s.fence(lease))
	open, failed := s.fence(lease), make(chan error, 1)
	go func() {
		tx := s.begin(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		failed <- pglock.Fence(t.Context(), tx, lease)
	}()
	s.awaitBlocked()
	s.commit(open)
	err := <-failed
	var server *pgconn.PgError
	if !errors.Is(err, distlock.ErrUnavailable) || !errors.As(err, &server) || server.Code != "40001" {
		t.Fatalf("err = %v, want SQLSTATE 40001", err)
	}
	again := s.begin(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, pglock.Fence(t.Context(), again, lease))
	s.commit(again)
}

// A transaction that waits for the mark of a holds no mark of b, in whatever order it names them.
func TestFence_severalLeasesInOneOrder(t *testing.T) {
	s := newScene(t)
	a, b := s.acquire("a"), s.acquire("b")
	open, passed := s.fence(a), make(chan error, 1)
	go func() {
		tx := s.begin(pgx.TxOptions{})
		passed <- errors.Join(pglock.Fence(t.Context(), tx, b, a), tx.Commit(t.Context()))
	}()
	s.awaitBlocked()
	free := s.begin(pgx.TxOptions{})
	if err := pglock.Fence(within(t, 5*time.Second), free, b); err != nil {
		t.Errorf("b is not free: %v", err)
	}
	_ = free.Rollback(t.Context())
	s.commit(open)
	<-passed
}

func TestFence_S2_oneOfSeveralIsStale(t *testing.T) {
	s := newScene(t)
	b, a := s.acquire("b"), s.acquire("a")
	next := s.takeOver(a)
	s.commit(s.fence(next))
	wantError(t, pglock.Fence(t.Context(), s.begin(pgx.TxOptions{}), b, a), distlock.ErrLost)
	if !errors.Is(a.Err(), distlock.ErrLost) || b.Err() != nil {
		t.Errorf("a: %v, b: %v; want that a is lost", a.Err(), b.Err())
	}
}

// A holder that stops inside of its transaction does not block the next one for longer than its
// lease.
func TestFence_L_idleTransactionEnds(t *testing.T) {
	s := newScene(t)
	lease := s.acquire("k", distlock.WithTTL(time.Second))
	stopped := s.fence(lease, s.acquire("longer"))
	s.exec(stopped, "UPDATE account SET balance = 1")
	next := s.takeOver(lease)
	began := time.Now()
	s.commit(s.fence(next))
	if waited := time.Since(began); waited > 5*time.Second {
		t.Errorf("the next holder waited for %s", waited)
	}
	if stopped.Commit(t.Context()) == nil {
		t.Error("the stopped transaction commits")
	}
}

func TestFence_idleTimeout(t *testing.T) {
	s := newScene(t)
	conn, err := s.pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	timeout := func() (ms int) {
		const query = "SELECT setting::int FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
		must(t, conn.QueryRow(t.Context(), query).Scan(&ms))
		return ms
	}
	for _, c := range []struct {
		before  string
		changes bool
	}{{"0", true}, {"2h", true}, {"20s", false}} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			s.exec(tx, "SET LOCAL idle_in_transaction_session_timeout = '"+c.before+"'")
			err := pglock.Fence(t.Context(), tx, s.acquire(c.before))
			ms := timeout()
			if left := ms > 20_000 && ms < 30_000; left != c.changes || !left && ms != 20_000 {
				t.Errorf("from %s the timeout becomes %d ms", c.before, ms)
			}
			return err
		})
		must(t, err)
		if ms := timeout(); ms != 0 {
			t.Errorf("after the transaction the timeout is %d ms", ms)
		}
	}
}

// Zero would mean no timeout, and more than 2^31 - 1 ms is an error.
func TestFence_idleTimeoutAtItsLimits(t *testing.T) {
	s := newScene(t)
	for left, want := range map[string]string{"0": "1ms", "3000000000": "2147483647ms"} {
		if timeout := s.do("BEGIN; SELECT belugalock.fence_v1('{73}', '{6b}', '{1}', " + left + "); " +
			"SHOW idle_in_transaction_session_timeout"); timeout != want {
			t.Errorf("with %s ms left the timeout is %s, want %s", left, timeout, want)
		}
	}
}

// The lock service has lost its data while its clock was behind. Its rightful holder needs a higher
// token.
func TestFence_raisesTokenAfterLoss(t *testing.T) {
	s := newScene(t)
	lease := s.acquire("k")
	s.do(fmt.Sprintf("INSERT INTO belugalock.mark VALUES ('shop', 'k', %d)", lease.Fence()+1_000_000))
	err := pglock.Fence(t.Context(), s.begin(pgx.TxOptions{}), lease)
	if !errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrLost) {
		t.Fatal(err)
	}
	s.commit(s.fence(lease))
	s.isMark(lease)
}

// The lease has met a lower mark before. So another lease has been here since.
func TestFence_S2_overtakenLeaseIsFinal(t *testing.T) {
	s := newScene(t)
	lease := s.acquire("k")
	s.commit(s.fence(lease))
	s.do("UPDATE belugalock.mark SET token = token + 1000000")
	token := lease.Fence()
	wantError(t, pglock.Fence(t.Context(), s.begin(pgx.TxOptions{}), lease), distlock.ErrLost)
	if lease.Fence() != token {
		t.Error("the token was raised")
	}
}

// The marks are in the schema of the locks.
func TestFence_schemaOfItsLock(t *testing.T) {
	s := emptyScene(t)
	opts := &pglock.Options{Schema: "locks"}
	must(t, pglock.Migrate(t.Context(), s.pool, opts))
	locker, err := pglock.New(t.Context(), s.pool, opts)
	must(t, err)
	defer locker.Close(t.Context())
	lease, err := locker.Acquire(t.Context(), "k")
	must(t, err)
	s.commit(s.fence(lease))
	if marks := s.do("SELECT count(*) FROM locks.mark"); marks != "1" {
		t.Errorf("%s marks", marks)
	}

	s.open(memlock.NewDriver())
	err = pglock.Fence(t.Context(), s.begin(pgx.TxOptions{}), s.acquire("elsewhere"), lease)
	if !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("leases of two schemas: %v", err)
	}
}

func TestFence_missingSchema(t *testing.T) {
	s := newScene(t)
	s.do("DROP SCHEMA belugalock CASCADE")
	err := pglock.Fence(t.Context(), s.begin(pgx.TxOptions{}), s.acquire("k"))
	if !errors.Is(err, distlock.ErrRefused) || !strings.Contains(err.Error(), "pglock.MigrateFence") {
		t.Error(err)
	}
}

// The application may fence, and nothing else.
func TestFence_leastRights(t *testing.T) {
	s := newScene(t)
	app, role := newPool(t, grantedTo(t, s.database, "app")), "app"+s.database.Name()
	s.do("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock FROM " + role)
	try := func(lease *distlock.Lease) error {
		return pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error { return pglock.Fence(t.Context(), tx, lease) })
	}
	lease := s.acquire("k")
	if err := try(lease); !errors.Is(err, distlock.ErrRefused) {
		t.Errorf("without EXECUTE: %v", err)
	}
	s.do("GRANT EXECUTE ON FUNCTION belugalock.fence_v1 TO " + role)
	if err := try(lease); err != nil {
		t.Errorf("with EXECUTE: %v", err)
	}
	if _, err := app.Exec(t.Context(), "UPDATE belugalock.mark SET token = 0"); err == nil {
		t.Error("the application changes marks")
	}
}

func TestFence_cancelledWait(t *testing.T) {
	s := newScene(t)
	lease := s.acquire("k")
	open := s.fence(lease)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- pglock.Fence(ctx, s.begin(pgx.TxOptions{}), lease) }()
	s.awaitBlocked()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrUnavailable) {
		t.Error(err)
	}
	s.commit(open)
}

// A standby has locks of its own, and takes no mark.
func TestSessionLock_refusesStandby(t *testing.T) {
	s := newScene(t)
	pool := newPool(t, servers.StartPostgresPair(t, false).Standby.URL("postgres"))
	wantError(t, second(pglock.NewSessionLock(t.Context(), pool)), distlock.ErrRefused)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pglock.Fence(t.Context(), tx, s.acquire("k")) })
	if !errors.Is(err, distlock.ErrRefused) {
		t.Errorf("Fence: %v", err)
	}
}
