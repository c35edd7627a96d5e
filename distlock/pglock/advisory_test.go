package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// here ends a query of pg_locks, for the locks of one database.
const here = "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"

func TestTxLock_refusesStricterIsolation(t *testing.T) {
	s := newScene(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx := s.begin(pgx.TxOptions{IsoLevel: level})
		if err := pglock.TxLock(within(t, 5*time.Second), tx, "k"); !errors.Is(err, pglock.ErrIsolation) {
			t.Errorf("%s: %v", level, err)
		}
		if locks := s.do("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' " + here); locks != "0" {
			t.Errorf("%s: %s locks are held", level, locks)
		}
	}
}

// The caller's pool has the default mode of pgx, which leaves prepared statements. A client has another
// connection of the pooler when a transaction holds the one that it had before.
func TestTxLock_throughPgBouncer(t *testing.T) {
	s := newScene(t)
	pooler := servers.StartPgBouncer(t, servers.SharedPostgres(t), "transaction")
	pool := newPool(t, pooler.URL(s.database.Name())+"&pool_max_conns=20")
	lease := s.acquire("fenced")
	client, err := pool.Acquire(t.Context())
	must(t, err)
	defer client.Release()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	sqlClient, err := db.Conn(t.Context())
	must(t, err)
	defer sqlClient.Close()
	for name, lock := range map[string]func() error{
		"pgx": func() error {
			return pgx.BeginFunc(t.Context(), client, func(tx pgx.Tx) error {
				return errors.Join(pglock.Fence(t.Context(), tx, lease), pglock.TxLock(t.Context(), tx, "k"))
			})
		},
		"database/sql": func() error {
			tx, err := sqlClient.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			return errors.Join(pglock.TxLockSQL(t.Context(), tx, "k"), tx.Commit())
		},
	} {
		for range 3 {
			if err := lock(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			holder, err := pool.Begin(t.Context())
			must(t, err)
			defer func() { _ = holder.Rollback(context.Background()) }()
		}
	}
	s.isMark(lease)
}

func TestTxLockSQL_excludesOtherTransactions(t *testing.T) {
	s := newScene(t)
	db := stdlib.OpenDBFromPool(s.pool)
	defer db.Close()
	begin := func(level sql.IsolationLevel) *sql.Tx {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		must(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	must(t, pglock.TxLockSQL(t.Context(), begin(sql.LevelReadCommitted), "k"))
	err := pglock.TxLockSQL(within(t, 100*time.Millisecond), begin(sql.LevelDefault), "k")
	wantError(t, err, context.DeadlineExceeded)
	wantError(t, pglock.TxLockSQL(within(t, 5*time.Second), begin(sql.LevelRepeatableRead), "k"), pglock.ErrIsolation)
}

func openSession(t *testing.T, pool *pgxpool.Pool) *pglock.SessionLock {
	t.Helper()
	l, err := pglock.NewSessionLock(t.Context(), pool)
	must(t, err)
	t.Cleanup(func() {
		must(t, l.Close(context.Background()))
	})
	return l
}

func TestSessionLock_excludes(t *testing.T) {
	s := newScene(t)
	a, b := openSession(t, s.pool), openSession(t, s.pool)
	must(t, a.Lock(t.Context(), "k"))
	for name, l := range map[string]*pglock.SessionLock{"the same session": a, "another session": b} {
		err := l.Lock(within(t, 50*time.Millisecond), "k")
		if !errors.Is(err, distlock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Unlock("k"); !errors.Is(err, distlock.ErrNotHeld) {
		t.Errorf("unlock of another's: %v", err)
	}
	err := pglock.TxLock(within(t, 50*time.Millisecond), s.begin(pgx.TxOptions{}), "k")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TxLock: %v", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- b.Lock(t.Context(), "k") }()
	must(t, a.Unlock("k"))
	must(t, <-locked)
}

// A caller that leaves does not close the connection, which has the locks of others.
func TestSessionLock_N_survivesCancelledCallers(t *testing.T) {
	s := newScene(t)
	l := openSession(t, s.pool)
	must(t, l.Lock(t.Context(), "kept"))
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		if err := l.Lock(ctx, fmt.Sprint(i)); err != nil && !errors.Is(err, distlock.ErrNotAcquired) {
			t.Fatal(err)
		}
		cancel()
	}
	must(t, l.Context().Err())
	must(t, l.Unlock("kept"))
}

// route is a connection that leads to another one when a test sets to, as behind a pooler. It leads
// nowhere when to is set to a pipe.
type route struct {
	net.Conn
	to atomic.Pointer[net.Conn]
}

func (r *route) now() net.Conn {
	if to := r.to.Load(); to != nil {
		return *to
	}
	return r.Conn
}

func (r *route) Read(p []byte) (int, error)          { return r.now().Read(p) }
func (r *route) Write(p []byte) (int, error)         { return r.now().Write(p) }
func (r *route) SetDeadline(at time.Time) error      { return r.now().SetDeadline(at) }
func (r *route) SetReadDeadline(at time.Time) error  { return r.now().SetReadDeadline(at) }
func (r *route) SetWriteDeadline(at time.Time) error { return r.now().SetWriteDeadline(at) }

// routed is the pool of a scene whose last connection is the route, and the server's side of it.
func (s *scene) routed(connected func(*pgx.Conn)) (*pgxpool.Pool, *route) {
	r := &route{}
	return newPool(s.t, s.database.URL(), func(config *pgxpool.Config) {
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			r.Conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return r, err
		}
		config.AfterConnect = func(_ context.Context, c *pgx.Conn) error { connected(c); return nil }
	}), r
}

// reroute leads to another session of the server.
func (s *scene) reroute(r *route) {
	s.t.Helper()
	conn, err := pgconn.Connect(s.t.Context(), s.database.URL())
	must(s.t, err)
	hijacked, err := conn.Hijack()
	must(s.t, err)
	s.t.Cleanup(func() { _ = hijacked.Conn.Close() })
	r.to.Store(&hijacked.Conn)
}

func TestSessionLock_S1_refusesPooledConnection(t *testing.T) {
	s := newScene(t)
	var r *route
	pool, r := s.routed(func(*pgx.Conn) { s.reroute(r) })
	_, err := pglock.NewSessionLock(t.Context(), pool)
	wantError(t, err, distlock.ErrRefused)
}

func TestSessionLock_N_noticesLoss(t *testing.T) {
	for name, lose := range map[string]func(*scene, *pglock.SessionLock, *route, *pgx.Conn){
		"connection": func(s *scene, _ *pglock.SessionLock, _ *route, _ *pgx.Conn) {
			s.do("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' " + here)
		},
		"lock": func(s *scene, l *pglock.SessionLock, _ *route, c *pgx.Conn) {
			must(s.t, second(c.Exec(s.t.Context(), "SELECT pg_advisory_unlock_all()")))
			_ = l.Lock(s.t.Context(), "after") // takes the connection over, for the race detector
		},
		"anotherProcess": func(s *scene, l *pglock.SessionLock, r *route, _ *pgx.Conn) {
			s.reroute(r)
			wantError(s.t, l.Lock(s.t.Context(), "elsewhere"), distlock.ErrLost)
		},
		"silence": func(s *scene, _ *pglock.SessionLock, r *route, _ *pgx.Conn) {
			nowhere, end := net.Pipe()
			s.t.Cleanup(func() { _ = end.Close() }) // or closing the connection takes 15 s
			r.to.Store(&nowhere)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			var conn *pgx.Conn
			pool, r := s.routed(func(c *pgx.Conn) { conn = c })
			l := openSession(t, pool)
			must(t, l.Lock(t.Context(), "k"))
			lose(s, l, r, conn)
			if !servers.Within(8*time.Second, func() bool { return l.Context().Err() != nil }) {
				t.Fatal("the loss is not noticed")
			}
			if cause := context.Cause(l.Context()); !errors.Is(cause, distlock.ErrLost) {
				t.Error(cause)
			}
			wantError(t, l.Unlock("k"), distlock.ErrLost)
			wantError(t, l.Lock(t.Context(), "k"), distlock.ErrLost)
		})
	}
}

func TestSessionLock_hookHasALock(t *testing.T) {
	s := newScene(t)
	l := openSession(t, newPool(t, s.database.URL(), func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "SELECT pg_advisory_lock_shared(1)")
			return err
		}
	}))
	pinged := func() bool {
		return s.do("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_backend_pid(), count(*)%' "+
			"AND datname = current_database() AND pid <> pg_backend_pid()") == "1"
	}
	if !servers.Within(10*time.Second, pinged) {
		t.Fatal("there was no ping")
	}
	must(t, l.Lock(t.Context(), "k"))
}

// The server ends a session whose client is gone.
func TestSessionLock_L_settings(t *testing.T) {
	s := newScene(t)
	var conn *pgx.Conn
	pool, _ := s.routed(func(c *pgx.Conn) { conn = c })
	l := openSession(t, pool)
	var idle, keepalive string
	const query = "SELECT current_setting('idle_session_timeout'), current_setting('tcp_keepalives_idle')"
	must(t, conn.QueryRow(t.Context(), query).Scan(&idle, &keepalive))
	if idle != "10s" || keepalive != "5" {
		t.Errorf("idle_session_timeout = %s, tcp_keepalives_idle = %s", idle, keepalive)
	}
	_ = l.Lock(t.Context(), "after") // takes the connection over, for the race detector
}

func TestSessionLock_limit(t *testing.T) {
	s := newScene(t)
	var limit int
	const query = "SELECT current_setting('max_locks_per_transaction')::int * current_setting('max_connections')::int / 10"
	must(t, s.pool.QueryRow(t.Context(), query).Scan(&limit))
	l := openSession(t, s.pool)
	for i := range limit {
		if err := l.Lock(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(i, err)
		}
	}
	wantError(t, l.Lock(within(t, 5*time.Second), "one more"), distlock.ErrRefused)
	must(t, errors.Join(l.Unlock("0"), l.Lock(within(t, 5*time.Second), "one more")))
}

func TestSessionLock_close(t *testing.T) {
	s := newScene(t)
	a, b := openSession(t, s.pool), openSession(t, s.pool)
	must(t, a.Lock(t.Context(), "k"))
	waiting := make(chan error, 1)
	go func() { waiting <- a.Lock(t.Context(), "k") }()
	must(t, a.Close(a.Context())) // a context that Close ends
	for what, err := range map[string]error{"waiter": <-waiting, "lock": a.Lock(t.Context(), "k"), "unlock": a.Unlock("k"),
		"context": context.Cause(a.Context())} {
		if !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := b.Lock(within(t, 5*time.Second), "k"); err != nil {
		t.Errorf("the lock is not released: %v", err)
	}
}

func TestSessionLock_refusesPgBouncer(t *testing.T) {
	s := newScene(t)
	for _, mode := range []string{"transaction", "session"} {
		pooler := servers.StartPgBouncer(t, servers.SharedPostgres(t), mode)
		_, err := pglock.NewSessionLock(t.Context(), newPool(t, pooler.URL(s.database.Name())))
		if !errors.Is(err, distlock.ErrRefused) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
