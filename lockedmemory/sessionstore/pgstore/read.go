package pgstore

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func (s *sessions) Read(ctx context.Context, r storedriver.Read) (page storedriver.Page, err error) {
	from, limit := r.From, min(r.Limit, math.MaxInt32)
	if r.Backward && from == (lockedmemory.Place{}) {
		from.Fence = math.MaxInt64
	}
	id, key := idArgs(r.ID)
	args := []any{s.keep.Namespace, r.Session, r.FirstAccess, r.Fence, r.AcceptedFence, r.Awaited, r.Since, s.idle, s.limits,
		r.Backward, placeArg(from), limit + 1, id, key, r.Next, r.PinnedOnly} // one more shows if there is more
	rows, err := postgres.Call(ctx, s.pool, scanRow, "read_v1", args...)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("pgstore: the server answered no row")
	}
	if err != nil {
		return page, err
	}
	page = rows[0].page
	for _, row := range rows {
		if row.entry.Place != (lockedmemory.Place{}) && (!r.PinnedOnly || slices.Contains(r.Pinned, row.entry.Place)) {
			page.Entries = append(page.Entries, row.entry)
		}
	}
	slices.SortFunc(page.Entries, func(a, b storedriver.Entry) int {
		if r.Backward {
			a, b = b, a
		}
		return a.Place.Compare(b.Place)
	})
	if len(page.Entries) > limit && !r.PinnedOnly {
		page.Entries = page.Entries[:limit]
		page.Last = page.Entries[limit-1].Place
	}
	return page, nil
}

// row is one of the reply of read_v1.
type row struct {
	page  storedriver.Page // without entries
	entry storedriver.Entry
}

func scanRow(found pgx.CollectableRow) (r row, err error) {
	var ids [][]byte
	var fences, ns, subs []int64
	mark, oldest, at := &r.page.Mark, &r.page.Oldest, &r.entry.Place
	err = found.Scan(&r.page.Outcome, &mark.Fence, &mark.N, &r.page.Revision, &oldest.Fence, &oldest.N, &oldest.Sub,
		&r.page.Known, &fences, &ns, &subs, &at.Fence, &at.N, &at.Sub, &ids, &r.entry.Messages, &r.entry.Pinned)
	for i, id := range ids {
		if i == 0 {
			r.entry.ID = string(id)
		} else {
			r.entry.Also = append(r.entry.Also, string(id))
		}
	}
	for i, fence := range fences {
		r.page.Pinned = append(r.page.Pinned, lockedmemory.Place{Fence: fence, N: ns[i], Sub: subs[i]})
	}
	return r, err
}
