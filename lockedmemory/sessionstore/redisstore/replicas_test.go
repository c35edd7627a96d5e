package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// A client that reads from replicas is refused, by the name of its option. Other clients are not.
func TestNewDriver_refusesReplicaReads(t *testing.T) {
	cluster := func(o redis.ClusterOptions) redis.UniversalClient {
		o.Addrs = []string{"localhost:1"}
		return redis.NewClusterClient(&o)
	}
	sentinel := func(o redis.FailoverOptions) redis.UniversalClient {
		o.MasterName, o.SentinelAddrs = "m", []string{"localhost:1"}
		return redis.NewFailoverClusterClient(&o)
	}
	for _, c := range []struct {
		option string // empty: the client is accepted
		client redis.UniversalClient
	}{
		{"ReadOnly", cluster(redis.ClusterOptions{ReadOnly: true})},
		{"RouteByLatency", cluster(redis.ClusterOptions{RouteByLatency: true})},
		{"RouteRandomly", cluster(redis.ClusterOptions{RouteRandomly: true})},
		{"ReplicaOnly", sentinel(redis.FailoverOptions{ReplicaOnly: true})},
		{"RouteByLatency", sentinel(redis.FailoverOptions{RouteByLatency: true})},
		{"RouteRandomly", sentinel(redis.FailoverOptions{RouteRandomly: true})},
		{"", cluster(redis.ClusterOptions{})},
		{"", sentinel(redis.FailoverOptions{})},
	} {
		d, err := redisstore.NewDriver(c.client, nil)
		_ = c.client.Close()
		switch {
		case c.option == "" && err != nil:
			t.Errorf("a client of masters: %v", err)
		case c.option != "" && (d != nil || !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), c.option)):
			t.Errorf("%T with %s: %v, want ErrInvalidOption that names it", c.client, c.option, err)
		}
	}
}

func TestNewColocatedDriver_refusesOtherLocks(t *testing.T) {
	if d, err := redisstore.NewColocatedDriver(memlock.NewDriver(), nil); d != nil || !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("with locks in this process: %v, %v", d, err)
	}
}
