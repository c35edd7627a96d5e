package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/internal/settings"
)

// Ping implements storedriver.Driver. It asks the server for the settings. Any role may read them.
func (s *sessions) Ping(ctx context.Context) (advice []string, err error) {
	for _, setting := range settings.Postgres {
		found, err := postgres.Query(ctx, s.pool, pgx.RowTo[string], "SELECT current_setting($1)", setting.Name)
		if err != nil {
			return nil, err
		}
		if found[0] != setting.Want {
			advice = append(advice, setting.Advice("PostgreSQL", found[0]))
		}
	}
	return advice, nil
}
