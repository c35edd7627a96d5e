package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	resp "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// Ping advises on two settings, if one master or more shows them and has other values.
func TestPing_advice(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	cluster := servers.StartCluster(t)
	servers.SetUser(t, server, "store", []string{"session", "distlock"}, servers.DocumentedRights(t, "doc.go").Needed...)
	node := newRig(t, server)
	as := newRig(t, server, &redis.Options{Username: "store", Password: servers.UserPassword})
	many := newRig(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
	advises := func(what string, r *rig, words ...string) {
		t.Helper()
		advice, err := r.store.Ping(t.Context())
		if err != nil || len(advice) != len(words) {
			t.Errorf("%s: %q, %v; want %q", what, advice, err, words)
			return
		}
		for i, word := range words {
			if !strings.Contains(advice[i], word) || !strings.Contains(advice[i], "set ") {
				t.Errorf("%s: %q, want %s", what, advice[i], word)
			}
		}
	}
	set := func(on *servers.Redis, name, value string) {
		t.Helper()
		do(t, on, "CONFIG", "SET", name, value)
	}
	advises("by default", node, "lazyfree-lazy-expire")
	set(server, "maxmemory-policy", "allkeys-lru")
	advises("with eviction", node, "lazyfree-lazy-expire", "maxmemory-policy")
	advises("without the right", as)
	set(server, "maxmemory-policy", "noeviction")
	set(server, "lazyfree-lazy-expire", "yes")
	advises("as recommended", node)
	advises("in a Cluster", many, "lazyfree-lazy-expire")
	for i, n := range cluster.Nodes() {
		if i > 0 {
			set(n, "lazyfree-lazy-expire", "yes")
		}
	}
	advises("of one node of a Cluster", many, "lazyfree-lazy-expire")
	set(cluster.Nodes()[0], "lazyfree-lazy-expire", "yes")
	advises("in a Cluster as recommended", many)
	server.Kill()
	if _, err := node.store.Ping(context.Background()); !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("of a dead server: %v", err)
	}
}

// A server that does not know the settings gives no advice.
func TestPing_unknownSettings_noAdvice(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	config := func(c *resp.Peer, _ string, _ []string) { c.WriteMapLen(0) }
	must(t, server.Server().Register("CONFIG", config))
	r := newRig(t, server)
	if advice, err := r.store.Ping(t.Context()); len(advice) > 0 || err != nil {
		t.Errorf("%q, %v", advice, err)
	}
}
