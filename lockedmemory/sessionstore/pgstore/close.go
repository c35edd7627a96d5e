package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Close implements storedriver.Driver. The hash of an ID is its key.
func (s *sessions) Close(ctx context.Context, c storedriver.CloseRequest) (storedriver.Verdict, error) {
	return s.verdict(ctx, "close_v1", []any{s.keep.Namespace, c.Session, s.idle, zeronull.Text(c.ID), zeronull.Text(c.By),
		c.Below, c.Mark, c.Stop, s.keep.RememberIDs})
}
