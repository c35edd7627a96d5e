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
	// sweepLimit bounds one page. ⚑ A silent server must not keep a connection for calls.
	sweepLimit = 5 * time.Second
)

// sweep deletes old names, page by page, until ctx ends. It ignores errors: the next page may succeed.
// The first page may come at once, so programs that live for seconds sweep, too.
func (s *service) sweep(ctx context.Context) {
	var place driver.Name
	for wait := rand.N(sweepEvery); ctx.Err() == nil; wait = sweepEvery*3/4 + rand.N(sweepEvery/2) {
		pause(ctx, wait)
		for deleted := sweepMany; deleted >= sweepMany && ctx.Err() == nil; {
			place, deleted = s.sweepPage(ctx, place)
		}
	}
}

// sweepPage deletes the old names of one page. It returns the place of the next one.
func (s *service) sweepPage(ctx context.Context, place driver.Name) (next driver.Name, deleted int) {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	_, _ = postgres.One(ctx, s.calls, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(&next.Namespace, &next.Key, &deleted)
	}, "sweep_v1", place.Namespace, place.Key)
	return next, deleted
}
