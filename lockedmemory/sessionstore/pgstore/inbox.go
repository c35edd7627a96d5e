package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Put implements storedriver.Driver.
func (s *sessions) Put(ctx context.Context, p storedriver.Put) (storedriver.Verdict, error) {
	id, key := idArgs(p.ID)
	return s.verdict(ctx, "put_v1", []any{s.keep.Namespace, p.Session, p.Deleted, id, key, notNull([][]byte{p.Question})[0],
		storedriver.InboxLife, storedriver.InboxMax, storedriver.InboxBytes})
}

// Pending implements storedriver.Driver.
func (s *sessions) Pending(ctx context.Context, a storedriver.Access) (v storedriver.Verdict, items []storedriver.Item, err error) {
	v, err = postgres.One(ctx, s.pool, func(row pgx.CollectableRow) (v storedriver.Verdict, err error) {
		var ids, questions [][]byte
		var ages []int64
		err = row.Scan(&v.Outcome, &v.Mark.Fence, &v.Mark.N, &ids, &questions, &ages)
		items = make([]storedriver.Item, len(ids)) // anew for each attempt
		for i, id := range ids {
			items[i] = storedriver.Item{ID: string(id), Question: questions[i], Age: time.Duration(ages[i]) * time.Microsecond}
		}
		return v, err
	}, "pending_v1", append(s.access(a), storedriver.InboxLife)...)
	return v, items, err
}

// Inboxes implements storedriver.Driver. Pages are in the order of the names.
func (s *sessions) Inboxes(ctx context.Context, after string) (names []string, next string, err error) {
	p, err := postgres.One(ctx, s.pool, pgx.RowToStructByPos[page], "inboxes_v1", s.keep.Namespace, after, storedriver.InboxLife)
	return p.Names, p.Next, err
}
