package redislock

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// renewalConns bounds the connections of the client for renewals: they go out in batches, a few at a time.
const renewalConns = 4

// renewalClient makes a client like the given one, for extends alone: a pool that the application has used up must not
// starve them. It keeps deadlines, so that a renewal that gets no answer is given up in time for another one, and it sends
// everything once: a copy of an extend that arrives late could shorten the lease.
//
// It returns nil for kinds of clients that it does not know; extends then share the caller's.
func renewalClient(client redis.UniversalClient) redis.UniversalClient {
	switch c := client.(type) {
	case *redis.Client:
		options := *c.Options()
		options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = renewalConns, 0, 0, 0
		options.ContextTimeoutEnabled, options.MaxRetries = true, -1
		options.PushNotificationProcessor, options.MaintNotificationsConfig = nil, noNotifications()
		return redis.NewClient(&options)
	case *redis.ClusterClient:
		options := *c.Options()
		options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = renewalConns, 0, 0, 0
		options.ContextTimeoutEnabled, options.MaxRetries = true, -1
		options.PushNotificationProcessor, options.MaintNotificationsConfig = nil, noNotifications()
		return redis.NewClusterClient(&options)
	}
	return nil
}

// noNotifications keeps the second client from handlers that the first has registered.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
