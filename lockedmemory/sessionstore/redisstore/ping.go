package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// settings are what Ping checks.
var settings = []struct{ name, want, advice string }{
	{"lazyfree-lazy-expire", "yes", "otherwise Redis blocks while it frees a long session that has expired"},
	{"maxmemory-policy", "noeviction", "otherwise Redis may evict sessions, IDs and locks"},
}

// Ping implements driver.Driver. It asks each master for the settings. Where Redis refuses CONFIG GET, it
// has answered, and there is no advice.
func (s *service) Ping(ctx context.Context) (advice []string, err error) {
	if _, err := s.redis.Repeat(ctx, func() error {
		return s.redis.Do(ctx, "", redis.NewTimeCmd(ctx, "time"))
	}); err != nil {
		return nil, s.explain(err)
	}
	nodes, _ := s.redis.Masters(ctx) // none for a client of another type
	for _, setting := range settings {
		for _, node := range nodes {
			get := redis.NewMapStringStringCmd(ctx, "config", "get", setting.name)
			if node.Do(ctx, get) != nil {
				continue
			}
			if value, shown := get.Val()[setting.name]; shown && value != setting.want {
				advice = append(advice, fmt.Sprintf("set %s of Redis to %q, it is %q: %s",
					setting.name, setting.want, value, setting.advice))
				break
			}
		}
	}
	return advice, nil
}
