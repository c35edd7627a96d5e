package campaign

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

var onPostgres = []string{"postgres"}

// A crash breaks no lock: a grant is on disk before it is answered. A release may be lost.
var postgresFaults = []*fault{
	{name: "server crashes", on: onPostgres, of: ofServer, short: 50 * ms, long: 500 * ms, heals: 1000 * ms, strike: crash},
	{name: "rows locked", on: onPostgres, of: ofServer, short: 200 * ms, long: 1500 * ms, strike: lockRows},
	{name: "read-only", on: onPostgres, of: ofServer, short: 200 * ms, long: 1000 * ms, strike: setting("default_transaction_read_only", "on")},
	{name: "serializable", on: onPostgres, of: ofServer, short: 500 * ms, long: 1500 * ms, strike: setting("default_transaction_isolation", "serializable")},
	{name: "statements time out", on: onPostgres, of: ofServer, short: 200 * ms, long: 1000 * ms, strike: setting("statement_timeout", "3ms")},
}

func (c *campaign) startPostgres() {
	c.postgres = servers.StartPostgres(c.t, c.plan.server...)
	c.database = migrated.Database(c.t, c.postgres)
	version, err := c.postgres.Do("SHOW server_version")
	if err != nil {
		c.t.Fatal(err)
	}
	c.version = "PostgreSQL " + strings.Fields(version)[0]
}

// openPostgres makes an application's pool.
func openPostgres(url string, dial faultnet.DialFunc) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = pool
	if dial != nil {
		config.ConnConfig.DialFunc = dial
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// crash kills all processes of the server, and starts it again.
func crash(c *campaign, h *hit) {
	c.postgres.Kill()
	h.restore = c.postgres.Restart
}

// lockRows has a transaction of another program lock the rows of the locks that all want.
func lockRows(c *campaign, h *hit) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.database.URL())
	if err != nil {
		c.misses(h, "connect: %v", err)
		return
	}
	h.restore = func() { _ = conn.Close(ctx) }
	var tag fmt.Stringer
	if _, err = conn.Exec(ctx, "BEGIN"); err == nil {
		tag, err = conn.Exec(ctx, "SELECT FROM belugalock.lease WHERE key LIKE '%/hot-%' ORDER BY namespace, key FOR UPDATE")
	}
	if err != nil || tag.String() == "SELECT 0" {
		c.misses(h, "no row was locked: %v", err)
	}
}

// setting changes a setting of all connections.
func setting(name, value string) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		set := func(sql string) {
			for _, sql := range []string{sql, "SELECT pg_reload_conf()"} {
				var err error
				if !servers.Within(10*time.Second, func() bool { _, err = c.postgres.Do(sql); return err == nil }) {
					c.t.Errorf("%s: %v", sql, err)
				}
			}
		}
		set(fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value))
		h.restore = func() { set("ALTER SYSTEM RESET " + name) }
	}
}

// hangUpPostgres ends the connections of workers, and returns how many. For "pubsub" these are the
// ones that listen.
func (c *campaign) hangUpPostgres(kind string) (closed int) {
	which := "true"
	if kind == "pubsub" {
		// pglock's advisory lock.
		which = "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1818586987)"
	}
	n, _ := c.database.Do("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity " +
		"WHERE datname = current_database() AND pid <> pg_backend_pid() AND " + which)
	_, _ = fmt.Sscan(n, &closed)
	return closed
}
