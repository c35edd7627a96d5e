package matrix

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// postgres is a database with the tables of locks and sessions.
type postgres struct {
	server   *servers.Postgres
	database *servers.PostgresDatabase
	url      string                // of clients
	pair     *servers.PostgresPair // nil: alone
}

// newPostgres makes a database of a server.
func newPostgres(tb testing.TB, server *servers.Postgres) *service {
	tb.Helper()
	database := migrated.Database(tb, server)
	// Faults look for the text of a statement, which each request of an unnamed one has.
	url := database.URL() + "&default_query_exec_mode=cache_describe"
	return &service{Name: "postgres", postgres: &postgres{server: server, database: database, url: url}}
}

// startPair starts a primary and a standby. Clients look for the one that takes writes.
func startPair(tb testing.TB) *service {
	tb.Helper()
	pair := servers.StartPostgresPair(tb, false)
	s := newPostgres(tb, pair.Primary)
	pair.AwaitStandby()
	s.Name, s.postgres.pair = "standby", pair
	s.postgres.url = strings.Replace(s.postgres.url, pair.Primary.Addr(), pair.Primary.Addr()+","+pair.Standby.Addr(), 1) +
		"&target_session_attrs=read-write"
	return s
}

func (p *postgres) failover() failover {
	return failover{
		awaitReplicas: p.pair.AwaitStandby, detach: p.pair.Detach, kill: p.pair.Primary.Kill,
		awaitMaster: func() {
			p.pair.Promote()
			time.Sleep(1100 * time.Millisecond) // pgxpool looks into connections that were idle for 1 s
			p.database = p.pair.Standby.Database(p.database.Name())
		},
	}
}

func openPostgres(url string, with []setting) (client, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return client{}, err
	}
	for _, change := range with {
		if change.postgres != nil {
			change.postgres(config)
		}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	return client{postgres: pool}, err
}

const microsNow = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// asked returns the answer to a question about a key.
func (p *postgres) asked(sql, key string) (string, error) {
	return p.database.Do(strings.NewReplacer("{key}", "$key$"+key+"$key$", "{now}", microsNow).Replace(sql))
}
