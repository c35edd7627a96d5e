package redislock

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// onNode are the options of a client of the shared Redis.
func onNode(t *testing.T) redis.UniversalOptions {
	t.Helper()
	db := servers.SharedRedis(t)
	return redis.UniversalOptions{Addrs: []string{db.Addr()}, DB: db.DB(), ContextTimeoutEnabled: true}
}

// proxied is onNode behind a proxy.
func proxied(t *testing.T) (redis.UniversalOptions, *faultnet.Proxy) {
	t.Helper()
	options := onNode(t)
	proxy := faultnet.New(t, options.Addrs[0])
	options.Addrs[0] = proxy.Addr()
	return options, proxy
}

// open makes a service that the test closes, with its client.
func open(t *testing.T, options redis.UniversalOptions) *lockDriver {
	t.Helper()
	client := redis.NewUniversalClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	d, err := NewDriver(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*lockDriver)
}
