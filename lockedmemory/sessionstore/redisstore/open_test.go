package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	resp "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// opened are lock, store and memory of the session of the test.
func opened(t *testing.T, opts *redisstore.Options) (*distlock.Locker, *sessionstore.Store[string, string], *lockedmemory.LockedMemory[string, string]) {
	t.Helper()
	key := lockedmemory.FixedKey(t.Name())
	locker, store, err := redisstore.Open(t.Context(), "redis://"+servers.SharedServer().Addr(), key, sessionstore.JSON[string]{}, opts)
	must(t, err)
	memory, err := lockedmemory.New(store, locker, key, nil)
	must(t, err)
	return locker, store, memory
}

// Lock and store have one client: where a session has no log, the store asks the lock for its
// owner. Both end with the Locker.
func TestOpen_lockAndStore_oneClient(t *testing.T) {
	t.Parallel()
	locker, store, memory := opened(t, &redisstore.Options{
		Lock:      distlock.Options{TTL: time.Minute},
		Retention: sessionstore.Retention{Namespace: "opened", IdleTTL: time.Hour},
		Store:     sessionstore.Options{Window: 1},
	})
	must(t, errors.Join(memory.Save(t.Context(), "first", ""), memory.Save(t.Context(), "q", "a")))
	if got, err := memory.Load(t.Context(), ""); err != nil || !slices.Equal(got, []string{"q", "a"}) {
		t.Errorf("Load with a window of 1: %q, %v", got, err)
	}
	client := newRig(t).client
	prefix := "opened:{" + t.Name() + "}:"
	if life := client.PTTL(t.Context(), prefix+"log").Val(); life <= 0 || life > time.Hour {
		t.Errorf("the log lives for %s, want at most 1 h", life)
	}
	var late context.Context
	must(t, memory.Turn(t.Context(), func(ctx context.Context) error { late = context.WithoutCancel(ctx); return nil }))
	must(t, client.Del(t.Context(), prefix+"log", prefix+"mark").Err())
	var stale *sessionstore.StaleError
	if err := store.Save(late, "late", ""); !errors.As(err, &stale) || stale.MarkToken != 0 {
		t.Errorf("a Save after the turn, in a session without a log and a mark: %v; want a StaleError without a mark", err)
	}
	must(t, locker.Close(t.Context()))
	if _, err := store.Load(t.Context(), ""); !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("Load after the Locker's Close: %v", err)
	}
}

// Two applications that differ in the namespace of their locks share no session.
func TestOpen_namespaceOfTheLocks_keepsSessionsApart(t *testing.T) {
	t.Parallel()
	client := newRig(t).client
	for namespace, prefix := range map[string]string{"support": "support:session", "sales": "sales:session"} {
		locker, _, memory := opened(t, &redisstore.Options{Lock: distlock.Options{Namespace: namespace}})
		must(t, memory.Save(t.Context(), namespace, "a"))
		if got, err := memory.Load(t.Context(), ""); err != nil || !slices.Equal(got, []string{namespace, "a"}) {
			t.Errorf("Load in %s: %q, %v", namespace, got, err)
		}
		if n := client.Exists(t.Context(), prefix+":{"+t.Name()+"}:log").Val(); n != 1 {
			t.Errorf("no log under %s", prefix)
		}
		must(t, locker.Close(t.Context()))
	}
}

// The leak check of this package sees a client that stays open.
func TestOpen_badInput_nothingStaysOpen(t *testing.T) {
	t.Parallel()
	url, key := "redis://"+servers.SharedServer().Addr(), lockedmemory.FixedKey("s")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	fails := func(ctx context.Context, url string, key lockedmemory.KeyFunc, opts *redisstore.Options, want error) {
		t.Helper()
		_, _, err := redisstore.Open(ctx, url, key, sessionstore.JSON[string]{}, opts)
		if !errors.Is(err, want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v; want %v, without the password", err, want)
		}
	}
	fails(ended, url, key, nil, context.Canceled)
	fails(t.Context(), "redis://user:secret@:port", key, nil, distlock.ErrInvalidOption)
	fails(t.Context(), url, nil, nil, distlock.ErrInvalidOption)
	for _, opts := range []*redisstore.Options{
		{Lock: distlock.Options{TTL: -1}}, {Retention: sessionstore.Retention{IdleTTL: 1}}, {Store: sessionstore.Options{Window: -1}},
	} {
		fails(t.Context(), url, key, opts, distlock.ErrInvalidOption)
	}
}

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
	set := func(on *servers.Redis, name, value string) { do(t, on, "CONFIG", "SET", name, value) }
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

// A client that reads from replicas is refused, by the name of its option. Other clients are not. Locks in
// this process are no locks of a client.
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
	if d, err := redisstore.NewColocatedDriver(memlock.NewDriver(), nil); d != nil || !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("with locks in this process: %v, %v", d, err)
	}
}

// begin adds an exchange to the log of each session of a namespace.
func begin(t *testing.T, client redis.UniversalClient, namespace string, sessions ...string) {
	t.Helper()
	pipe := client.Pipeline()
	for _, name := range sessions {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: namespace + ":{" + name + "}:log",
			Values: []any{"op", strings.Repeat("0", 32), "m", "x"}})
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
}

// A job removes each session that is listed, while others begin. It finds all that were there before.
func TestSessions_removedWhileListed_allFound(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	removeWhileListed(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	if stats, err := server.Do("INFO", "commandstats"); err != nil || strings.Contains(stats, "cmdstat_keys:") || !strings.Contains(stats, "cmdstat_scan:") {
		t.Errorf("the commands are %s, %v", stats, err)
	}
}

func TestSessions_removedWhileListed_allFound_onCluster(t *testing.T) {
	t.Parallel()
	removeWhileListed(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.SharedTopology("cluster").Addrs()}))
}

func removeWhileListed(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	r := newRig(t, client, &sessionstore.Retention{Namespace: "many"})
	want := make(map[string]bool)
	for n := range 4000 {
		want[fmt.Sprint("before-", n)] = true
	}
	begin(t, client, "many", slices.Collect(maps.Keys(want))...)
	n, more := 0, 0
	for name, err := range r.store.Sessions(t.Context()) {
		must(t, err)
		delete(want, name)
		if !strings.HasPrefix(name, "before-") && !strings.HasPrefix(name, "later-") {
			t.Errorf("%q is listed", name)
		}
		must(t, client.Unlink(t.Context(), "many:{"+name+"}:log").Err())
		if n++; n%100 == 0 && more < 1000 {
			for range 100 {
				more++
				begin(t, client, "many", fmt.Sprint("later-", more))
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("%d of 4,000 sessions are not listed", len(want))
	}
}

// Leases with the default TTL do not outlast a failover with the default of Sentinel.
func TestOpen_sentinel_slowFailover_warns(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	url := "redis+sentinel://" + servers.StartSentinelFor(t, servers.StartRedis(t).Addr()).Addr() + "?master_name=belugalock"
	locker, _, err := redisstore.Open(t.Context(), url, lockedmemory.SessionKey, sessionstore.JSON[string]{},
		&redisstore.Options{Lock: distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	must(t, err)
	must(t, locker.Close(t.Context()))
	if !strings.Contains(log.String(), "set down-after-milliseconds to 5000, or a TTL above 46.5s") {
		t.Errorf("the log is %q", log.String())
	}
}

// Keys of other programs, and of namespaces that a pattern would match, are no sessions.
func TestSessions_foreignKeys_leftOut(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"foreign", "f*[a]?", `b\*`} {
		r := newRig(t, &sessionstore.Retention{Namespace: namespace})
		begin(t, r.client, namespace, "own", "%41", "a}b", "a%7", "own}:{own")
		begin(t, r.client, "x"+namespace, "other")
		begin(t, r.client, namespace+"x", "other")
		begin(t, r.client, "foo[a]x", "other")
		begin(t, r.client, `b*`, "other")
		var got []string
		for name, err := range r.store.Sessions(t.Context()) {
			must(t, err)
			got = append(got, name)
		}
		if fmt.Sprint(got) != "[own]" {
			t.Errorf("namespace %s: %q", namespace, got)
		}
	}
}
