package pglock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
)

const (
	// sweepEvery is the time between two pages of a sweep, within a quarter more or less.
	sweepEvery = time.Minute
	// sweepMany is the number of deleted names of a page after which the next page follows at once.
	sweepMany = 500
)

// sweep deletes old names, page by page, until ctx ends. It ignores errors: the next page may succeed.
func (s *service) sweep(ctx context.Context) {
	var place driver.Name
	for ctx.Err() == nil {
		pause(ctx, sweepEvery*3/4+rand.N(sweepEvery/2))
		for deleted := sweepMany; deleted >= sweepMany && ctx.Err() == nil; {
			place, deleted = s.sweepPage(ctx, place)
		}
	}
}

// sweepPage deletes the old names of one page. It returns the place of the next one.
func (s *service) sweepPage(ctx context.Context, place driver.Name) (next driver.Name, deleted int) {
	_, _ = postgres.One(ctx, s.calls, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(&next.Namespace, &next.Key, &deleted)
	}, "sweep_v1", place.Namespace, place.Key)
	return next, deleted
}
