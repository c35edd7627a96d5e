package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectLimit bounds the wait for a new connection, and then that for its hook and its check. ⚑ It ends
	// before the patience of a Locker: the error then shows the address.
	connectLimit = 4 * time.Second
	// pingLimit bounds the wait for the answer of a connection that was idle.
	pingLimit = time.Second
	// unproven is the key of a connection that was idle.
	unproven = "belugalock.unproven"
	// closeLimit bounds the wait for the server to close the connection.
	closeLimit = time.Second
	// repeats is how often a call is repeated after a serialization failure or a deadlock.
	repeats = 5
)

// Pool is connections to one database. It checks the schema before its first call. Pool is safe for
// concurrent use.
type Pool struct {
	caller string // "pglock"
	schema Schema
	conns  *pgxpool.Pool
	owned  bool
	// unnamed: statements have no name.
	unnamed atomic.Bool
	// mode is that of unnamed statements.
	mode pgx.QueryExecMode
	// leaving are the connections that close outside of conns. hook is BeforeClose of its configuration.
	leaving sync.WaitGroup
	hook    func(*pgx.Conn)
	// checked is set after the first check. Each new connection of an owned pool is checked.
	checked, pooled atomic.Bool
	// strict: the default isolation of the database is above READ COMMITTED.
	strict atomic.Bool
}

// Open makes a pool of at most size connections of its own, from the configuration of an
// application's pool, hooks included. It does no I/O. caller begins the errors of its calls. Open
// changes config: pass a copy, as pgxpool.Pool.Config returns one.
//
// A call fails with driver.ErrRefused if the schema lacks a part, or has an older version, or if the
// encoding of the database is not UTF8. Open refuses what [Schema.Validate] refuses.
func Open(caller string, config *pgxpool.Config, size int, schema Schema) (*Pool, error) {
	if err := schema.Validate(); err != nil {
		return nil, err
	}
	p := &Pool{caller: caller, schema: schema, owned: true, mode: pgx.QueryExecModeCacheDescribe}
	config.MaxConns, config.MinConns, config.MinIdleConns = int32(size), 0, 0
	conn := config.ConnConfig
	conn.DescriptionCacheCapacity = max(conn.DescriptionCacheCapacity, 64)
	p.unnamed.Store(!isNaming(conn))
	conn.RuntimeParams["client_encoding"] = "UTF8" // else one name is two for two programs
	if conn.ConnectTimeout <= 0 || conn.ConnectTimeout > connectLimit {
		conn.ConnectTimeout = connectLimit
	}
	conn.OnNotification = nil // else pgx keeps no notifications for WaitForNotification
	notice := conn.OnNotice
	conn.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		noteWarning(c, n)
		if notice != nil {
			notice(c, n)
		}
	}
	p.hook = config.BeforeClose
	isIdle := config.ShouldPing
	config.ShouldPing = func(ctx context.Context, c pgxpool.ShouldPingParams) bool {
		if isIdle == nil && c.IdleDuration > time.Second || isIdle != nil && isIdle(ctx, c) {
			c.Conn.PgConn().CustomData()[unproven] = true
		}
		return false // Pool pings
	}
	connected := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, connectLimit) // ⚑ the ctx of the pool ends with the pool
		defer cancel()
		if connected != nil {
			if err := connected(ctx, c); err != nil {
				return err
			}
		}
		return p.check(ctx, c)
	}
	conns, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", caller, err)
	}
	p.conns = conns
	return p, nil
}

// Over makes calls over the connections of an application's pool. It does not find an unknown outcome
// that the server shows by a warning, see noteWarning.
func Over(caller string, conns *pgxpool.Pool, schema Schema) *Pool {
	p := &Pool{caller: caller, schema: schema, conns: conns, mode: pgx.QueryExecModeCacheDescribe}
	conn := conns.Config().ConnConfig
	p.unnamed.Store(!isNaming(conn))
	if conn.DescriptionCacheCapacity == 0 {
		p.mode = pgx.QueryExecModeExec // ⚑ DescribeExec is two transactions, which a pooler may part
	}
	return p
}

// isNaming reports whether the application lets pgx give names to statements, as it does by default.
func isNaming(conn *pgx.ConnConfig) bool {
	return conn.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && conn.StatementCacheCapacity > 0
}

// Close closes connections of its own, and waits for the end of their goroutines: at most 15 s for a
// server that does not answer. No call is under way.
func (p *Pool) Close() {
	if p.owned {
		p.conns.Close()
		p.leaving.Wait()
	}
}

// Ping connects, which checks the schema, and waits for one answer.
func (p *Pool) Ping(ctx context.Context) error {
	_, err := Query(ctx, p, pgx.RowTo[int], "SELECT 1")
	return err
}

// Pooled reports whether a connection went through a pooler such as PgBouncer. Such a connection gets
// no notifications.
func (p *Pool) Pooled() bool { return p.pooled.Load() }

// Acquire takes a connection out of the pool, for example to listen. The caller releases or discards
// it.
func (p *Pool) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	c, err := p.acquire(ctx)
	if err != nil {
		return nil, p.failed(err)
	}
	return c, nil
}

// acquire takes a connection out of the pool. One that was idle, or that has said something, has answered
// a ping: a server that ends a connection says so, and a request would get that for an answer.
//
// ⚑ The pool pings, too, but keeps the place of a connection that does not answer.
func (p *Pool) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	for {
		c, err := p.conns.Acquire(ctx)
		if err != nil {
			return nil, notDone(err)
		}
		conn := c.Conn().PgConn()
		data := conn.CustomData()
		if data[unproven] == nil && !hasInput(conn.Conn()) {
			return c, nil
		}
		delete(data, unproven)
		ping, cancel := context.WithTimeout(ctx, pingLimit)
		err = c.Ping(ping)
		cancel()
		if err == nil {
			return c, nil
		}
		_ = conn.Close(ping)
		p.release(c)
	}
}

// release returns a connection to the pool.
//
// ⚑ A broken connection leaves the pool at once. pgx waits for its peer, at most 15 s, and until then
// the pool would make no other connection in its place.
func (p *Pool) release(c *pgxpool.Conn) {
	if p.owned && c.Conn().IsClosed() {
		p.Discard(c)
		return
	}
	c.Release()
}

// Discard closes a connection of an owned pool instead of releasing it.
func (p *Pool) Discard(c *pgxpool.Conn) {
	conn := c.Hijack()
	if p.hook != nil {
		p.hook(conn)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = conn.Close(ctx)
	p.leaving.Go(func() { <-conn.PgConn().CleanupDone() })
}

// Query runs one statement in a transaction of its own, and reads all of its rows. Parameters and
// columns are binary. It returns soon after ctx ends, and closes the connection then. The error has the
// kind that is certain, see driver.MayHaveEffect.
//
// Query repeats a statement that the server has undone because of concurrent ones, up to five times. If
// the server does not know the name of a statement, Query and all later calls send it without a name.
func Query[T any](ctx context.Context, p *Pool, scan pgx.RowToFunc[T], sql string, args ...any) (rows []T, err error) {
	for range 1 + repeats {
		rows, err = query(ctx, p, scan, sql, args)
		if isForgotten(err) {
			p.unnamed.Store(true)
		} else if !isUndone(err) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, p.failed(err)
	}
	return rows, nil
}

// Call is [Query] of a function of the schema.
func Call[T any](ctx context.Context, p *Pool, scan pgx.RowToFunc[T], function string, args ...any) ([]T, error) {
	places := make([]string, len(args))
	for i := range places {
		places[i] = "$" + strconv.Itoa(i+1)
	}
	return Query(ctx, p, scan, p.schema.In("SELECT * FROM {schema}."+function+"("+strings.Join(places, ", ")+")"), args...)
}

// One is [Call] of a function that returns one row.
func One[T any](ctx context.Context, p *Pool, scan pgx.RowToFunc[T], function string, args ...any) (row T, err error) {
	rows, err := Call(ctx, p, scan, function, args...)
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("%s: the server answered %d rows, want 1", p.caller, len(rows))
	}
	if err != nil {
		return row, err
	}
	return rows[0], nil
}

func query[T any](ctx context.Context, p *Pool, scan pgx.RowToFunc[T], sql string, args []any) ([]T, error) {
	c, err := p.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer p.release(c)
	if !p.checked.Load() {
		if err := p.check(ctx, c.Conn()); err != nil {
			return nil, notDone(err)
		}
	}
	conn := c.Conn().PgConn()
	forgetWarning(conn)
	// The server parses and plans a statement with a name once for each connection. ⚑ A pooler sends the
	// next statement to another connection, which does not know the name.
	mode := pgx.QueryExecModeCacheStatement
	if p.unnamed.Load() {
		mode = p.mode
	}
	args = append([]any{mode}, args...)
	var rows []T
	if p.strict.Load() {
		rows, err = readCommitted(ctx, c, scan, sql, args)
	} else {
		rows, err = collect(ctx, c, scan, sql, args)
	}
	if err == nil {
		return rows, lateFailure(conn)
	}
	if isReadOnly(err) { // the next connection may find the new primary
		_ = c.Conn().Close(ctx)
	}
	return nil, KindOf(err)
}

func collect[T any](
	ctx context.Context, c interface {
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	}, scan pgx.RowToFunc[T], sql string, args []any,
) ([]T, error) {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// readCommitted runs a statement in a transaction at READ COMMITTED, in three round trips. ⚑ At a
// stricter isolation, which the database may have as its default, concurrent calls undo each other.
func readCommitted[T any](
	ctx context.Context, c *pgxpool.Conn, scan pgx.RowToFunc[T], sql string, args []any,
) (rows []T, err error) {
	tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, notDone(err)
	}
	if rows, err = collect(ctx, tx, scan, sql, args); err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return rows, tx.Commit(ctx)
}

func (p *Pool) failed(err error) error {
	if isMissing(err) {
		err = errors.Join(err, p.schema.missing())
	}
	return fmt.Errorf("%s: %w", p.caller, err)
}
