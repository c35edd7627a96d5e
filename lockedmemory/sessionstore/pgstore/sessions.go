package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/internal/postgres"
)

// page is one of Sessions.
type page struct {
	Names []string
	Next  string
}

// Sessions implements storedriver.Driver. Pages are in the order of the names.
func (s *sessions) Sessions(ctx context.Context, after string) (names []string, next string, err error) {
	p, err := postgres.One(ctx, s.pool, pgx.RowToStructByPos[page], "sessions_v1", s.keep.Namespace, after)
	return p.Names, p.Next, err
}
