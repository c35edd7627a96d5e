package redisurl

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// WantedDown is the advice for how long a master is silent before a failover. A longer silence takes a
// longer TTL, a shorter one is soon a busy master.
const WantedDown = 5 * time.Second

// Outlasts says whether leases of ttl outlast a failover that begins after a silence of down, and above
// which TTL they do. A lease lasts at least two thirds of its TTL after its last renewal, and ends up to a
// second before its TTL. The election of a master takes about a second.
func Outlasts(ttl, down time.Duration) (above time.Duration, ok bool) {
	taken := down + time.Second
	above = (max(taken*3/2, taken+time.Second) + 99*time.Millisecond).Truncate(100 * time.Millisecond)
	return above, taken < min(ttl*2/3, ttl-time.Second)
}

// NewSentinel makes the client of one of the Sentinels.
func NewSentinel(addr string, of *redis.FailoverOptions) *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{Addr: addr, Username: of.SentinelUsername, Password: of.SentinelPassword,
		TLSConfig: of.TLSConfig, DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true})
}

// WarnOfFailover logs a warning if rawURL names Sentinels, and leases of ttl do not outlast the failover
// for which they are set. It takes a second at most, and is silent if no Sentinel answers.
func WarnOfFailover(ctx context.Context, rawURL string, ttl time.Duration, logger *slog.Logger) {
	options, _ := Parse(rawURL)
	of, ok := options.(*redis.FailoverOptions)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, addr := range of.SentinelAddrs {
		client := NewSentinel(addr, of)
		master, err := client.Master(ctx, of.MasterName).Result()
		_ = client.Close()
		if err != nil {
			continue
		}
		ms, _ := strconv.Atoi(master["down-after-milliseconds"])
		down := time.Duration(ms) * time.Millisecond
		if above, ok := Outlasts(ttl, down); !ok {
			logger.Warn(fmt.Sprintf("redis: the Sentinels wait for %s before a failover, and leases with a TTL of %s end in it: "+
				"set down-after-milliseconds to %d, or a TTL above %s", down, ttl, WantedDown.Milliseconds(), above))
		}
		return
	}
}
