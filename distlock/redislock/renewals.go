package redislock

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/belugalock/belugalock/internal/redisconn"
)

// renewalConns bounds the connections of the client for renewals: they go out in batches, a few at a time.
const renewalConns = 4

// masterFor is for how long a connection of the second client leads to the master, if Sentinels say who that is. It is told
// of no fail-over, and asks when it connects.
const masterFor = time.Second

// renewalClient makes a client like the given one, for extends and clean-ups: a pool that the
// application has used up must not starve them. It keeps deadlines, so that a renewal that gets no
// answer ends in time for another renewal.
//
// It returns nil for kinds of clients that it does not know; extends then share the caller's.
func renewalClient(client redis.UniversalClient) redis.UniversalClient {
	switch c := client.(type) {
	case *redis.Client:
		options := *c.Options()
		options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = renewalConns, 0, 0, 0
		options.PipelineReadBufferSize, options.PipelineWriteBufferSize = 0, 0 // or pipelines would have a pool of their own
		options.ContextTimeoutEnabled = true
		if options.MaxRetries == 0 { // what the first has made of -1, and the second would take for the default
			options.MaxRetries = -1
		}
		options.PushNotificationProcessor, options.MaintNotificationsConfig = nil, noNotifications()
		if options.Addr == redisconn.SentinelAddr {
			options.ConnMaxLifetime, options.ConnMaxLifetimeJitter = masterFor, 0
		}
		return redis.NewClient(&options)
	case *redis.ClusterClient:
		options := *c.Options()
		options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = renewalConns, 0, 0, 0
		options.PipelineReadBufferSize, options.PipelineWriteBufferSize = 0, 0
		options.ContextTimeoutEnabled = true
		options.PushNotificationProcessor, options.MaintNotificationsConfig = nil, noNotifications()
		return redis.NewClusterClient(&options)
	}
	return nil
}

// noNotifications keeps the second client from handlers that the first has registered.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
