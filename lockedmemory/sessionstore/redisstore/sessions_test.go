package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

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
	for topology, client := range map[string]redis.UniversalClient{
		"node":    redis.NewClient(&redis.Options{Addr: server.Addr()}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.SharedTopology("cluster").Addrs()}),
	} {
		r := newRig(t, client, &sessionstore.Retention{Namespace: "many"})
		want := make(map[string]bool)
		var names []string
		for n := range 4000 {
			names = append(names, fmt.Sprint("before-", n))
			want[names[n]] = true
		}
		begin(t, client, "many", names...)
		n, more := 0, 0
		for name, err := range r.store.Sessions(t.Context()) {
			must(t, err)
			delete(want, name)
			if !strings.HasPrefix(name, "before-") && !strings.HasPrefix(name, "later-") {
				t.Errorf("%s: %q is listed", topology, name)
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
			t.Errorf("%s: %d of 4,000 sessions are not listed", topology, len(want))
		}
	}
	if stats, err := server.Do("INFO", "commandstats"); err != nil || strings.Contains(stats, "cmdstat_keys:") || !strings.Contains(stats, "cmdstat_scan:") {
		t.Errorf("the commands are %s, %v", stats, err)
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
