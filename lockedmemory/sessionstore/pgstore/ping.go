package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/internal/postgres"
)

// settings are what Ping checks. Each has the value "on" in a sound server.
var settings = map[string]string{
	"autovacuum":       "otherwise erased text stays in the files, and each Save makes its session slower",
	"fsync":            "otherwise a power failure may lose acknowledged Saves and tokens, and may destroy the database",
	"full_page_writes": "otherwise a power failure may destroy pages of the database",
}

// Ping implements driver.Driver. It asks the server for the settings. Any role may read them.
func (s *service) Ping(ctx context.Context) (advice []string, err error) {
	names, err := postgres.Query(ctx, s.pool, pgx.RowTo[string], "SELECT name FROM pg_settings "+
		"WHERE name IN ('autovacuum', 'fsync', 'full_page_writes') AND setting = 'off' ORDER BY name")
	for _, name := range names {
		advice = append(advice, fmt.Sprintf("set %s of PostgreSQL to on: %s", name, settings[name]))
	}
	return advice, err
}
