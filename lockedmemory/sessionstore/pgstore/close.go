package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Close implements storedriver.Driver. The hash of an ID is its key.
func (s *sessions) Close(ctx context.Context, c storedriver.CloseRequest) (storedriver.CloseReply, error) {
	return postgres.One(ctx, s.pool, func(row pgx.CollectableRow) (reply storedriver.CloseReply, err error) {
		err = row.Scan(&reply.Outcome, &reply.Mark)
		return reply, err
	}, "close_v1", s.keep.Namespace, c.Session, s.idle, zeronull.Text(c.ID), zeronull.Text(c.By),
		c.Below, c.Mark, c.Stop, s.keep.RememberIDs)
}
