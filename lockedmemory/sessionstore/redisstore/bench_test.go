package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

// BenchmarkReplaceStep prints for how long Redis runs a step of a Replace, on average. A step blocks Redis.
func BenchmarkReplaceStep(b *testing.B) {
	for name, c := range map[string]struct{ exchanges, messages, size int }{
		"50_of_1KB": {1000, 2, 500}, "4_of_256_messages": {200, 256, 2}, "1_of_1MB": {20, 2, 500_000}, "1_of_8MB": {5, 2, 4_000_000},
	} {
		b.Run(name, func(b *testing.B) {
			client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(b).Addr(), ContextTimeoutEnabled: true})
			r := newRigOver(b, client, nil, nil)
			var with []lockedmemory.Exchange[string]
			for n := range c.exchanges {
				text := strings.Repeat(strconv.Itoa(n)+" ", c.size)[:c.size] // scripts keep equal texts once
				with = append(with, lockedmemory.Exchange[string]{Messages: slices.Repeat([]string{text}, c.messages)})
			}
			must(b, r.memory.Save(b.Context(), "q", "a"))
			scripts := func() (calls, micros float64) {
				_, after, _ := strings.Cut(client.Info(b.Context(), "commandstats").Val(), "\ncmdstat_evalsha:")
				_, err := fmt.Sscanf(after, "calls=%g,usec=%g", &calls, &micros)
				must(b, err)
				return calls, micros
			}
			must(b, r.memory.Turn(b.Context(), func(ctx context.Context) error {
				last, err := r.store.Last(ctx, 1)
				must(b, err)
				must(b, r.store.Replace(ctx, last[0].Place, last[0].Place, with...))
				calls, micros := scripts()
				for b.Loop() {
					last, err = r.store.Last(ctx, math.MaxInt)
					must(b, err)
					must(b, r.store.Replace(ctx, last[0].Place, last[0].Place, last[0]))
				}
				calls2, micros2 := scripts()
				b.ReportMetric((micros2-micros)/(calls2-calls)/1000, "ms/step")
				return nil
			}))
		})
	}
}
