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

// sweep deletes old names, page by page, until ctx ends. The first page may come at once, so programs
// that live for seconds sweep, too.
func (s *service) sweep(ctx context.Context) {
	for wait := rand.N(sweepEvery); ctx.Err() == nil; wait = sweepEvery*3/4 + rand.N(sweepEvery/2) {
		pause(ctx, wait)
		for ctx.Err() == nil && s.sweepPage(ctx) >= sweepMany {
		}
	}
}

// sweepPage deletes the old names of one page. ⚑ After an error, the next page begins at the same
// place: a sweep that began anew would never see the last names.
func (s *service) sweepPage(ctx context.Context) (deleted int) {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	var place, next driver.Name
	if from := s.sweepFrom.Load(); from != nil {
		place = *from
	}
	_, err := postgres.One(ctx, s.calls, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(&next.Namespace, &next.Key, &deleted)
	}, "sweep_v1", place.Namespace, place.Key)
	if err != nil {
		return 0
	}
	s.sweepFrom.Store(&next)
	return deleted
}
