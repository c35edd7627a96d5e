package redisstore

import (
	"context"
	"math"

	"github.com/belugalock/belugalock/internal/rediskeys"
)

// Sessions implements storedriver.Driver. Each page covers about 1,000 keys of one node.
func (s *sessions) Sessions(ctx context.Context, after string) (names []string, next string, err error) {
	names, next, err = rediskeys.Names(ctx, s.redis, s.keep.Namespace, "log", after, math.MaxInt)
	return names, next, s.explain(err)
}
