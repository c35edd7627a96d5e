package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/settings"
)

// Ping implements storedriver.Driver. It asks each master for the settings. A Redis that refuses CONFIG GET
// has answered, and there is no advice.
func (s *sessions) Ping(ctx context.Context) (advice []string, err error) {
	if _, err := s.redis.Repeat(ctx, func() error {
		return s.redis.Do(ctx, "", redis.NewTimeCmd(ctx, "time"))
	}); err != nil {
		return nil, s.explain(err)
	}
	nodes, _ := s.redis.Masters(ctx) // none for a client of another type
	for _, setting := range settings.Redis {
		for _, node := range nodes {
			get := redis.NewMapStringStringCmd(ctx, "config", "get", setting.Name)
			if node.Do(ctx, get) != nil {
				continue
			}
			if value, shown := get.Val()[setting.Name]; shown && value != setting.Want {
				advice = append(advice, setting.Advice("Redis", value))
				break
			}
		}
	}
	return advice, nil
}
