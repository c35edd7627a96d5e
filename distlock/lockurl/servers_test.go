package lockurl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// User and password of the nodes are not those of the Sentinels.
func TestOpen_sentinel(t *testing.T) {
	t.Parallel()
	s := servers.SharedTopology("sentinel")
	for _, node := range s.Nodes() {
		do(t, node, "ACL", "SETUSER", "agent", "on", ">p@ss", "~*", "+@all")
	}
	for _, sentinel := range s.Sentinels() {
		do(t, sentinel, "ACL", "SETUSER", "watcher", "on", ">s&p", "&*", "+@all")
	}
	url := strings.Replace(s.URL(), "://", "://agent:p%40ss@", 1)
	checkLocks(t, url+"&sentinel_username=watcher&sentinel_password=s%26p")
	if !strings.Contains(do(t, s.Sentinel.Master(), "CLIENT", "LIST"), "user=agent") {
		t.Error("the master has no connection of agent")
	}
	watchers := 0
	for _, sentinel := range s.Sentinels() {
		watchers += strings.Count(do(t, sentinel, "CLIENT", "LIST"), "user=watcher")
	}
	if watchers == 0 {
		t.Error("no Sentinel has a connection of watcher")
	}
}

func TestOpen_cluster(t *testing.T) {
	t.Parallel()
	c := servers.SharedTopology("cluster").Cluster
	for _, node := range c.Nodes() {
		do(t, node, "ACL", "SETUSER", "agent", "on", ">p@ss", "~*", "+@all")
	}
	checkLocks(t, strings.Replace(c.URL(), "://", "://agent:p%40ss@", 1))
	masters := map[*servers.Redis]bool{}
	for _, key := range keys() {
		masters[c.MasterOf("distlock:{"+key+"}:lock")] = true
	}
	if len(masters) != 3 {
		t.Errorf("the keys are on %d of 3 masters", len(masters))
	}
	for master := range masters {
		if !strings.Contains(do(t, master, "CLIENT", "LIST"), "user=agent") {
			t.Error("a master has no connection of agent")
		}
	}
}

// keys are enough to reach all masters of a Cluster.
func keys() (keys []string) {
	for i := range 20 {
		keys = append(keys, fmt.Sprint("key ", i))
	}
	return keys
}

// checkLocks leaves its Lockers open until the test ends.
func checkLocks(t *testing.T, url string) {
	t.Helper()
	one, other := open(t, url), open(t, url)
	for _, key := range keys() {
		err := one.Do(t.Context(), key, func(ctx context.Context) error {
			if _, err := other.TryAcquire(ctx, key); !errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("%s: the other Locker: %v", key, err)
			}
			lease, _ := one.FromContext(ctx, key)
			return lease.Extend(ctx, time.Minute)
		})
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func open(t *testing.T, url string) *distlock.Locker {
	t.Helper()
	l, err := lockurl.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func acquire(t *testing.T, l *distlock.Locker) *distlock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// awaitWaiter returns when "key" has a waiter.
func awaitWaiter(t *testing.T, l *distlock.Locker) {
	t.Helper()
	servers.Await(t, 10*time.Second, "a waiter in the queue", func() bool {
		info, err := l.Inspect(t.Context(), "key")
		return err == nil && info.Waiters == 1
	})
}

func do(t *testing.T, server *servers.Redis, args ...string) string {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	return reply
}
