package redisconn

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// masterFor is how long a connection lives if Sentinels name the master. The connection does not learn
// of a failover. It asks the Sentinels when it connects.
const masterFor = time.Second

// ownOptions are the options of a connection of the transport, apart from those of the application's client.
// A pool that the application has used up thus delays no call.
func ownOptions(client *redis.Options) *redis.Options {
	options := *client
	options.MinIdleConns = 0
	// ⚑ No second pool for pipelines. Before v9.23 the size of a buffer asks for one. Since then each
	// client has one, unless its size is negative.
	options.PipelineReadBufferSize, options.PipelineWriteBufferSize, options.PipelinePoolSize = 0, 0, -1
	// Transport.Repeat repeats a call, and also its dial. The pauses of go-redis would outlast a probe.
	options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, false
	// ⚑ A client makes 0 of -1, and -1 of -2. Another client takes 0 for the default.
	if options.ReadTimeout <= 0 {
		options.ReadTimeout--
	}
	if options.WriteTimeout <= 0 {
		options.WriteTimeout--
	}
	// The application has its handlers, its cache and its limiter for its own client.
	options.PushNotificationProcessor, options.Limiter = nil, nil
	options.ClientSideCache, options.ClientSideCacheConfig = nil, nil
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if options.Addr == sentinelAddr {
		options.ConnMaxLifetime, options.ConnMaxLifetimeJitter = masterFor, 0
	}
	return &options
}
