package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/postgres"
)

// SessionLock has no fencing token, no deadline and no queue, and its holder notices a broken
// connection up to 4 s after the server has released the locks. So prefer [New] unless the work may
// overlap. It holds advisory locks on one connection of its own, and is safe for concurrent use.
//
// A lock excludes the clients of one database, and [TxLock] there. Two keys may share a lock,
// because PostgreSQL sees 8 bytes of the SHA-256 of a key. The server ends the session of a holder
// that is silent for 10 s.
type SessionLock struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the connection is

	turn  chan struct{} // holds a token while a statement runs, and from the end on; guards what follows
	conn  *pgx.Conn
	held  map[int64]bool
	extra int // advisory locks that a hook of the pool has taken
	limit int // a tenth of the lock table, which all sessions of the server share
}

// A holder notices a loss within a period and the patience, before the server ends a silent
// session.
const (
	sessionPing     = time.Second
	sessionPatience = 3 * time.Second
)

// sessionLocks counts the advisory locks of the session.
const sessionLocks = "count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"

var (
	errOtherProcess = errors.New("another server process answers than the one connected to, so a pooler is in between")
	errFreed        = errors.New("the server has released a lock of this session")
)

// NewSessionLock connects with the configuration of pool, hooks included. Close the SessionLock
// after use.
//
// It fails with [distlock.ErrRefused] behind a pooler, which gives one session to several clients,
// on a standby, and with a wrong password. Without an answer it fails with [distlock.ErrUnavailable],
// or with the error of ctx. A nil pool fails with [distlock.ErrInvalidOption].
func NewSessionLock(ctx context.Context, pool *pgxpool.Pool) (*SessionLock, error) {
	if pool == nil {
		return nil, postgres.ErrNoPool
	}
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // leaves no prepared statement in a pooler
	own, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%w: SessionLock: %w", distlock.ErrInvalidOption, err)
	}
	defer own.Close()
	conn, err := own.Acquire(ctx)
	if err != nil {
		return nil, sessionFailed(ctx, err)
	}
	s := &SessionLock{conn: conn.Hijack(), held: make(map[int64]bool)}
	s.turn, s.done = make(chan struct{}, 1), make(chan struct{})
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if err := s.prepare(ctx); err != nil {
		s.end()
		return nil, err
	}
	go s.watch()
	return s, nil
}

// prepare sets the timeouts of the session, unless it is not the client's alone.
func (s *SessionLock) prepare(ctx context.Context) error {
	var (
		pid     uint32
		standby bool
	)
	err := s.conn.QueryRow(ctx, `SELECT pg_backend_pid(), pg_is_in_recovery(), (SELECT `+sessionLocks+`),
		current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int
		+ current_setting('max_prepared_transactions')::int) / 10`).Scan(&pid, &standby, &s.extra, &s.limit)
	switch {
	case err != nil:
		return sessionFailed(ctx, err)
	case pid != s.conn.PgConn().PID():
		return fmt.Errorf("%w: SessionLock: %w; connect to the server itself", distlock.ErrRefused, errOtherProcess)
	case standby:
		return fmt.Errorf("%w: SessionLock: the server is a standby; connect to the primary", distlock.ErrRefused)
	}
	if _, err := s.conn.Exec(ctx, `SELECT set_config('idle_session_timeout', '10s', false),
		set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '1', false),
		set_config('tcp_keepalives_count', '5', false)`); err != nil {
		return sessionFailed(ctx, err)
	}
	return nil
}

func sessionFailed(ctx context.Context, err error) error {
	return postgres.Explain(ctx, fmt.Errorf("SessionLock: %w", postgres.KindOf(err)))
}

// Context ends when the locks are lost, with the cause [distlock.ErrLost], or by Close, with the
// cause [distlock.ErrClosed]. Work under a lock ends with it.
func (s *SessionLock) Context() context.Context { return s.ctx }

// Lock waits until it holds the lock on key, or until ctx ends. It asks at least 4 times a second.
// A key that this SessionLock holds is busy, too.
//
// Lock fails with [distlock.ErrNotAcquired] and the error of ctx, with [distlock.ErrRefused] if the
// locks of this SessionLock fill a tenth of the server's lock table, or with the cause of Context.
// Then it does not hold the lock. If the server does not answer, Lock returns up to 3 s after the
// end of ctx.
func (s *SessionLock) Lock(ctx context.Context, key string) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		if locked, err := s.try(ctx, advisoryKey(key)); locked || err != nil {
			return err
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
}

func (s *SessionLock) try(ctx context.Context, key int64) (bool, error) {
	if err := s.take(ctx); err != nil {
		return false, err
	}
	defer s.pass()
	switch {
	case s.held[key]: // ⚑ the server would grant it again
		return false, nil
	case len(s.held) >= s.limit:
		return false, fmt.Errorf("%w: SessionLock: it holds %d locks, a tenth of the server's lock table; "+
			"nothing was locked; unlock one, or raise max_locks_per_transaction", distlock.ErrRefused, len(s.held))
	}
	locked, err := s.ask("pg_try_advisory_lock($1)::int", key)
	if locked == 1 {
		s.held[key] = true
	}
	return locked == 1, err
}

// Unlock releases the lock on key. It fails with [distlock.ErrNotHeld], or with the cause of
// Context; then the lock is released, or will be soon.
func (s *SessionLock) Unlock(key string) error {
	if err := s.take(context.Background()); err != nil {
		return err
	}
	defer s.pass()
	id := advisoryKey(key)
	if !s.held[id] {
		return distlock.ErrNotHeld
	}
	delete(s.held, id)
	unlocked, err := s.ask("pg_advisory_unlock($1)::int", id)
	if err == nil && unlocked == 0 {
		err = s.lose(errFreed)
	}
	return err
}

// Close closes the connection, which releases all locks. If ctx ends first, and not by Close, Close
// returns its error, and the connection is closed in the background, within 20 s.
func (s *SessionLock) Close(ctx context.Context) error {
	s.cancel(distlock.ErrClosed)
	if context.Cause(ctx) == distlock.ErrClosed { // one of s.Context
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch pings until the end, and closes the connection.
func (s *SessionLock) watch() {
	ping := time.NewTicker(sessionPing)
	defer ping.Stop()
	for s.ctx.Err() == nil {
		select {
		case <-ping.C:
			s.ping()
		case <-s.ctx.Done():
		}
	}
	s.turn <- struct{}{}
	s.end()
}

// ping checks that the server still has all locks of this session.
func (s *SessionLock) ping() {
	if s.take(s.ctx) != nil {
		return
	}
	defer s.pass()
	locks, err := s.ask(sessionLocks)
	if err == nil && locks != len(s.held)+s.extra {
		_ = s.lose(errFreed)
	}
}

func (s *SessionLock) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-ctx.Done():
		return fmt.Errorf("%w: SessionLock: %w", distlock.ErrNotAcquired, ctx.Err())
	}
}

func (s *SessionLock) pass() { <-s.turn }

// ask returns the number that this session answers.
//
// ⚑ The ctx of a caller does not end a statement: that would close the connection, and release all
// locks. ⚑ A pooler may pass a statement to another server process, so that two clients hold one
// lock.
func (s *SessionLock) ask(number string, args ...any) (n int, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, sessionPatience)
	defer cancel()
	var pid uint32
	err = s.conn.QueryRow(ctx, "SELECT pg_backend_pid(), "+number, args...).Scan(&pid, &n)
	if err == nil && pid != s.conn.PgConn().PID() {
		err = errOtherProcess
	}
	if err != nil {
		return 0, s.lose(err)
	}
	return n, nil
}

func (s *SessionLock) lose(reason error) error {
	s.cancel(fmt.Errorf("%w: SessionLock: %w", distlock.ErrLost, reason))
	return context.Cause(s.ctx)
}

func (s *SessionLock) end() {
	ctx, cancel := context.WithTimeout(context.Background(), sessionPatience)
	defer cancel()
	_ = s.conn.Close(ctx)
	<-s.conn.PgConn().CleanupDone()
	close(s.done)
}
