package subject

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	peer "cirello.io/pglock"
	advisory "github.com/allisson/go-pglock/v3"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// The subjects on PostgreSQL. Setup.Addr is the URL of a database that PreparePostgres has prepared.
const (
	OursPostgres     = "belugalock, PostgreSQL"
	Updates          = "two UPDATEs"
	UpdatesUnflushed = "two UPDATEs, one unflushed"
	Cirello          = "cirello.io/pglock"
	Allisson         = "allisson/go-pglock"
	Insert           = "INSERT"
)

// tables are those of the bare statements.
const tables = `
CREATE TABLE bare_lock (key text PRIMARY KEY, owner text, expires_at timestamptz) WITH (fillfactor = 50);
CREATE TABLE bare_exchange (session text, n bigint, op text, messages bytea[], PRIMARY KEY (session, n));`

// PreparePostgres makes the tables of all subjects.
func PreparePostgres(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()
	cirello, err := peer.New(db)
	if err != nil {
		return err
	}
	return errors.Join(cirello.CreateTable(), pglock.Migrate(ctx, pool, nil), pgstore.Migrate(ctx, pool, nil))
}

// OnPostgres reports whether a subject needs PostgreSQL.
func OnPostgres(name string) bool {
	switch name {
	case OursPostgres, Updates, UpdatesUnflushed, Cirello, Allisson, Insert:
		return true
	}
	return false
}

// oursPostgres is this library, as ours.
type oursPostgres struct {
	locker *distlock.Locker
	pool   *pgxpool.Pool
	seen   *observer
}

func newOursPostgres(s Setup) (*oursPostgres, error) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, s.Addr)
	if err != nil {
		return nil, err
	}
	seen := &observer{}
	locker, err := pglock.New(ctx, pool, &pglock.Options{Options: distlock.Options{
		TTL: s.TTL, Wait: -1, Observer: seen, Logger: slog.New(slog.DiscardHandler),
	}})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &oursPostgres{locker, pool, seen}, nil
}

func (o *oursPostgres) Acquire(ctx context.Context, key string) (Held, error) {
	return o.locker.Acquire(ctx, key)
}

func (o *oursPostgres) Close() error {
	defer o.pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return o.locker.Close(ctx)
}

// RemoteHandoffs returns how many locks came from another process.
func (o *oursPostgres) RemoteHandoffs() int64 { return o.seen.remote.Load() }

// oursPostgresStore is the session store of this library in the database of the lock.
type oursPostgresStore struct{ *oursPostgres }

func openPostgresStore(s Setup) (Sessions, error) {
	o, err := newOursPostgres(s)
	if err != nil {
		return nil, err
	}
	return oursPostgresStore{o}, nil
}

func (s oursPostgresStore) Session(name string) (Session, error) {
	key := lockedmemory.FixedKey(name)
	inner, err := pgstore.New(s.pool, key, sessionstore.JSON[Message]{}, nil)
	if err != nil {
		return nil, err
	}
	return lockedmemory.New(inner, s.locker, key, nil)
}

// updates are a lock of two statements, without waiters, fences, renewal and idempotence. They have the
// exec mode of this library.
type updates struct {
	acquires, releases *pgxpool.Pool
	ttl                time.Duration
}

// openUpdates opens updates; unflushed: a release is not flushed to disk, as this library's.
func openUpdates(s Setup, unflushed bool) (Locker, error) {
	acquires, err := bare(s.Addr, "on")
	if err != nil || !unflushed {
		return &updates{acquires, acquires, s.TTL}, err
	}
	releases, err := bare(s.Addr, "off")
	return &updates{acquires, releases, s.TTL}, err
}

// bare returns a pool for bare statements.
func bare(url, synchronousCommit string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.ConnConfig.RuntimeParams["synchronous_commit"] = synchronousCommit
	return pgxpool.NewWithConfig(context.Background(), config)
}

func (u *updates) Acquire(ctx context.Context, key string) (Held, error) {
	for {
		done, err := u.acquires.Exec(ctx, `UPDATE bare_lock SET owner = $2, expires_at = clock_timestamp() + $3
			WHERE key = $1 AND owner IS NULL`, key, op, u.ttl)
		if err != nil {
			return nil, err
		}
		if done.RowsAffected() == 1 {
			return updatesHeld{u, key}, nil
		}
		done, err = u.acquires.Exec(ctx, "INSERT INTO bare_lock VALUES ($1) ON CONFLICT DO NOTHING", key)
		if err != nil {
			return nil, err
		}
		if done.RowsAffected() == 0 {
			return nil, fmt.Errorf("%s: %s is held", Updates, key)
		}
	}
}

func (u *updates) Close() error {
	u.acquires.Close()
	u.releases.Close()
	return nil
}

type updatesHeld struct {
	of  *updates
	key string
}

func (h updatesHeld) Release(ctx context.Context) error {
	done, err := h.of.releases.Exec(ctx, "UPDATE bare_lock SET owner = NULL WHERE key = $1 AND owner = $2", h.key, op)
	if err == nil && done.RowsAffected() == 0 {
		err = fmt.Errorf("%s: the lock is not held any more", Updates)
	}
	return err
}

// cirelloLocker keeps lease rows. Its waiters sleep for a lease, which no option changes alone.
type cirelloLocker struct {
	client *peer.Client
	db     *sql.DB
}

func openCirello(s Setup) (Locker, error) {
	db, err := sql.Open("postgres", s.Addr)
	if err != nil {
		return nil, err
	}
	client, err := peer.New(db, peer.WithLeaseDuration(s.TTL), peer.WithHeartbeatFrequency(s.TTL/4))
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &cirelloLocker{client, db}, nil
}

func (l *cirelloLocker) Acquire(ctx context.Context, key string) (Held, error) {
	lock, err := l.client.AcquireContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return cirelloHeld{l.client, lock}, nil
}

func (l *cirelloLocker) Close() error { return l.db.Close() }

type cirelloHeld struct {
	client *peer.Client
	lock   *peer.Lock
}

func (h cirelloHeld) Release(ctx context.Context) error { return h.client.ReleaseContext(ctx, h.lock) }

// allissonLocker takes advisory locks, each on a connection of its own.
type allissonLocker struct{ db *sql.DB }

func openAllisson(s Setup) (Locker, error) {
	db, err := sql.Open("postgres", s.Addr)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(32) // else the waiters connect anew each time
	return &allissonLocker{db}, nil
}

func (l *allissonLocker) Acquire(ctx context.Context, key string) (Held, error) {
	id := fnv.New64a()
	_, _ = id.Write([]byte(key))
	lock, err := advisory.NewLock(ctx, int64(id.Sum64()), l.db)
	if err != nil {
		return nil, err
	}
	if err := lock.WaitAndLock(ctx); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return allissonHeld{&lock}, nil
}

func (l *allissonLocker) Close() error { return l.db.Close() }

type allissonHeld struct{ lock *advisory.Lock }

func (h allissonHeld) Release(ctx context.Context) error {
	return errors.Join(h.lock.Unlock(ctx), h.lock.Close())
}

// inserts keep a session by bare INSERTs, each in a transaction of its own.
type inserts struct{ pool *pgxpool.Pool }

func openInserts(s Setup) (Sessions, error) {
	pool, err := bare(s.Addr, "on")
	return &inserts{pool}, err
}

func (s *inserts) Session(name string) (Session, error) { return &inserted{of: s, name: name}, nil }

func (s *inserts) Close() error {
	s.pool.Close()
	return nil
}

type inserted struct {
	of   *inserts
	name string
	n    int64
}

func (s *inserted) Save(ctx context.Context, question, answer Message) error {
	fields, err := entry(question, answer)
	if err != nil {
		return err
	}
	s.n++
	_, err = s.of.pool.Exec(ctx, "INSERT INTO bare_exchange VALUES ($1, $2, $3, $4)",
		s.name, s.n, op, [][]byte{fields[3].([]byte), fields[5].([]byte)})
	return err
}

func (s *inserted) Load(ctx context.Context, _ string) (messages []Message, err error) {
	rows, err := s.of.pool.Query(ctx, "SELECT messages FROM bare_exchange WHERE session = $1 ORDER BY n", s.name)
	if err != nil {
		return nil, err
	}
	exchanges, err := pgx.CollectRows(rows, pgx.RowTo[[][]byte])
	if err != nil {
		return nil, err
	}
	codec := sessionstore.JSON[Message]{}
	for _, exchange := range exchanges {
		for _, text := range exchange {
			m, err := codec.Decode(text)
			if err != nil {
				return nil, err
			}
			messages = append(messages, m)
		}
	}
	return messages, nil
}
