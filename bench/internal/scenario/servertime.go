package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

// sent are the commands that a subject sends. Redis also counts what their scripts call, but not in
// their place.
var sent = map[string][]string{subject.Ours: {"evalsha"}, subject.Raw: {"set", "evalsha"}}

// serverTime returns for how long Redis has run the commands of a subject since its start; 0 for a
// subject without a list of commands.
func (b *Bench) serverTime(ctx context.Context, name string) (sum time.Duration, err error) {
	if sent[name] == nil {
		return 0, nil
	}
	client := redis.NewClient(&redis.Options{Addr: b.Addr})
	defer client.Close()
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for _, command := range sent[name] {
		_, after, found := strings.Cut(info, "\ncmdstat_"+command+":")
		if !found {
			continue // not yet called
		}
		var calls, micros int64
		if _, err := fmt.Sscanf(after, "calls=%d,usec=%d", &calls, &micros); err != nil {
			return 0, fmt.Errorf("time of %s in Redis: %w", command, err)
		}
		sum += time.Duration(micros) * time.Microsecond
	}
	return sum, nil
}
