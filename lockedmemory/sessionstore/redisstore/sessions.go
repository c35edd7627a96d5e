package redisstore

import (
	"context"
	"math"

	"github.com/belugalock/belugalock/distlock/redislock"
)

// Sessions implements driver.Driver. Each page covers about 1,000 keys of one node.
func (s *service) Sessions(ctx context.Context, after string) (names []string, next string, err error) {
	prefix := s.keep.Namespace + ":"
	logs, next, err := s.redis.Keys(ctx, after, prefix+"{", "}:log", math.MaxInt)
	for _, log := range logs {
		if name, ok := redislock.KeyOf(log[len(prefix) : len(log)-len("log")]); ok {
			names = append(names, name)
		}
	}
	return names, next, s.explain(err)
}
