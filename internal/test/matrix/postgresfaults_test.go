package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// mustDo sends SQL to the database, past all clients and proxies.
func (p *postgres) mustDo(tb testing.TB, sql string) string {
	tb.Helper()
	answer, err := p.database.Do(sql)
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// setByDefault changes a setting of new connections.
func (p *postgres) setByDefault(tb testing.TB, setting, value string) {
	tb.Helper()
	p.mustDo(tb, fmt.Sprintf("ALTER DATABASE %s SET %s = '%s'", p.database.Name(), setting, value))
}

// stranger runs statements of another program, whose connection stays open until end.
func (p *postgres) stranger(tb testing.TB, sql ...string) (end func()) {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	conn, err := pgx.Connect(ctx, p.database.URL())
	if err != nil {
		tb.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = conn.Close(ctx) })
	tb.Cleanup(end)
	for _, statement := range sql {
		if _, err := conn.Exec(ctx, statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
	return end
}

// locksRow has a stranger lock the row of a lock.
func (p *postgres) locksRow(tb testing.TB, key string) (end func()) {
	tb.Helper()
	return p.stranger(tb, "BEGIN", "SELECT FROM belugalock.lease WHERE key = '"+key+"' FOR UPDATE")
}

// silent makes the notifications of a client fail in a database of their own, with the error of a
// server whose queue of notifications is full. To fill it takes 8 GB.
func (p *postgres) silent(tb testing.TB) (*service, setting) {
	tb.Helper()
	s := newPostgres(tb, p.server)
	s.postgres.mustDo(tb, `CREATE OR REPLACE FUNCTION belugalock.notify_v1(p_channels text[], p_messages text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('application_name') = 'silent' THEN
    RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
  END IF;
  PERFORM pg_notify(c, m) FROM unnest(p_channels, p_messages) AS n (c, m);
END $$`)
	return s, s.listener(tb, "silent")
}

// competitors makes Lockers for compete. Each connects, so a fault begins later.
func competitors(t *testing.T, s *service) (lockers []*distlock.Locker) {
	for range 4 {
		lockers = append(lockers, locker(t, s.client(t), distlock.Options{TTL: 10 * time.Second, Wait: -1}))
	}
	return lockers
}

// compete lets Lockers compete for a lock, for a time and at least 20 turns. They hold it one at a
// time, with rising tokens, and see no other errors than these.
func compete(t *testing.T, lockers []*distlock.Locker, key string, lasts time.Duration, allowed ...error) {
	t.Helper()
	const enough = 20
	start := time.Now()
	var workers sync.WaitGroup
	var inside, turns, failed atomic.Int64
	var last int64 // written by the holder
	check := func(what string, err error) (ok bool) {
		if err != nil && !slices.ContainsFunc(allowed, func(other error) bool { return errors.Is(err, other) }) {
			t.Errorf("%s: %v", what, err)
		} else if err != nil {
			failed.Add(1)
		}
		return err == nil
	}
	more := func() bool {
		took := time.Since(start)
		return took < lasts || turns.Load() < enough && took < lasts+30*time.Second
	}
	for _, l := range lockers {
		workers.Go(func() {
			for more() && !t.Failed() {
				lease, err := l.Acquire(t.Context(), key)
				if !check("Acquire", err) {
					continue
				}
				if n := inside.Add(1); n != 1 || lease.Fence() <= last {
					t.Errorf("%d holders; fence %d after %d", n, lease.Fence(), last)
				}
				last = lease.Fence()
				turns.Add(1)
				inside.Add(-1)
				check("Release", lease.Release(t.Context()))
			}
		})
	}
	workers.Wait()
	t.Logf("%d turns; %d calls have failed", turns.Load(), failed.Load())
	if turns.Load() < enough {
		t.Errorf("%d turns are too few to show anything", turns.Load())
	}
}

// longSnapshot: a transaction with a snapshot stays open, so no dead row can be removed. Nothing else
// changes: docs/performance.md says how slow it gets.
func longSnapshot(t *testing.T, s *service) {
	const key = "longSnapshot"
	s = newPostgres(t, s.postgres.server)
	mustRelease(t, mustAcquire(t, locker(t, s.client(t), distlock.Options{}), key))
	end := s.postgres.stranger(t, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM belugalock.lease")
	compete(t, competitors(t, s), key, time.Second)
	end()
}

// statementTimeout: the server cancels a statement that waits for a stranger's lock. Nothing is done,
// and a caller that waits gets the lock.
func statementTimeout(t *testing.T, s *service) {
	const key, wait = "statementTimeout", 2 * time.Second
	s = newPostgres(t, s.postgres.server)
	s.postgres.setByDefault(t, "statement_timeout", "50ms")
	l := locker(t, s.client(t), distlock.Options{Wait: wait})
	mustRelease(t, mustAcquire(t, l, key))
	end := s.postgres.locksRow(t, key)
	_, err := l.TryAcquire(t.Context(), key)
	wants(t, "TryAcquire", err, distlock.ErrUnavailable)
	time.AfterFunc(wait/4, end)
	mustRelease(t, mustAcquire(t, l, key))
	s.gone(t, key)
}

// serverCrashes: the server is killed with all its processes, and comes back. What it has
// acknowledged is there: a lease, and an exchange.
func serverCrashes(t *testing.T, s *service) {
	const key, ttl = "serverCrashes", 20 * time.Second
	opts := distlock.Options{TTL: ttl, RenewEvery: ttl / 10, Wait: -1}
	in := s.instance(t, opts)
	b := new(book)
	turn := in.session(key+"-session", false).begin(t)
	lease := mustAcquire(t, in.beside, key)
	waiter := enqueue(t, s, locker(t, s.client(t), opts), key, 1)
	b.mustSave(t, turn.ctx, turn.session, "before")
	s.postgres.server.Kill()
	s.postgres.server.Restart()

	_, err := locker(t, s.client(t), distlock.Options{}).TryAcquire(t.Context(), key)
	wants(t, "TryAcquire", err, distlock.ErrNotAcquired)
	if err := answered(func() error { return lease.Extend(t.Context(), ttl) }); err != nil {
		t.Errorf("Extend: %v", err)
	}
	waiter.still()
	if err := lease.Release(t.Context()); err != nil { // the connection may be one from before
		wantsWrite(t, "Release", err) // it goes on in the background
	}
	start := time.Now()
	next := waiter.lease(2 * check)
	recovered(t, start, check+time.Second)
	rises(t, lease.Fence(), next.Fence())
	mustRelease(t, next)
	if err := b.note("after", answered(func() error { return turn.save(turn.ctx, "after") })); err != nil {
		t.Errorf("Save: %v", err)
	}
	turn.mustEnd(t)
	b.check(t, turn.history(t, t.Context()))
}

// poolerRestarted: a PgBouncer in transaction mode, which delivers no notifications, is restarted.
// Waiters poll, and leases stay.
func poolerRestarted(t *testing.T, s *service) {
	const key, ttl = "poolerRestarted", 2 * time.Second
	pooler := servers.StartPgBouncer(t, s.postgres.server, "transaction")
	s.postgres.url = pooler.URL(s.postgres.database.Name())
	kept := mustAcquire(t, locker(t, s.client(t), distlock.Options{TTL: ttl, RenewEvery: ttl / 10}), key+"-kept")
	lockers := competitors(t, s)
	var restarting sync.WaitGroup
	restarting.Go(func() {
		for range 3 {
			time.Sleep(ttl / 4)
			pooler.Restart()
		}
	})
	compete(t, lockers, key, ttl, distlock.ErrUnavailable, distlock.ErrOutcomeUnknown)
	restarting.Wait()
	keeps(t, kept, ttl)
	for range 3 {
		waiter := enqueue(t, s, locker(t, s.client(t), distlock.Options{TTL: time.Minute, Wait: -1}), kept.Key(), 1)
		before := kept.Fence()
		mustRelease(t, kept)
		start := time.Now()
		kept = waiter.lease(check)
		recovered(t, start, time.Second)
		rises(t, before, kept.Fence())
	}
	mustRelease(t, kept)
	s.gone(t, key)
}
