package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The list of a large namespace blocks no server: its commands are many and short.
func TestList_shortCommandsOnManyLocks(t *testing.T) {
	const locks, limit = 2_500, 250
	server := servers.StartRedis(t, "--slowlog-log-slower-than", "100000", "--slowlog-max-len", "1000")
	d := open(t, server.URL())
	var wg sync.WaitGroup
	for part := range 20 {
		wg.Go(func() {
			for n := part; n < locks; n += 20 {
				req := driver.AcquireRequest{Name: driver.Name{Namespace: "distlock", Key: fmt.Sprintf("key-%05d", n)},
					Owner: fmt.Sprintf("%032x", 1+n), TTL: 10 * time.Minute, Holder: "host-1:10"}
				if _, err := d.Acquire(t.Context(), req); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	calls := func(line string) (scans, scripts int) {
		t.Helper()
		for _, command := range []string{"CONFIG RESETSTAT", "SLOWLOG RESET"} {
			must(t, second(server.Do(strings.Fields(command)...)))
		}
		lockctl(t, append(strings.Fields(line), "--url", server.URL())...).is(t, 0, "key-0")
		sent := func(command string) (n int) {
			_, _ = fmt.Sscanf(client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_"+command], "calls=%d", &n)
			return n
		}
		if n := sent("keys"); n > 0 {
			t.Errorf("%s: it sends %d KEYS", line, n)
		}
		if slow := client.SlowLogGet(t.Context(), -1).Val(); len(slow) > 0 {
			t.Errorf("%s: slow commands: %+v", line, slow)
		}
		return sent("scan"), sent("evalsha") + sent("eval")
	}
	scans, scripts := calls(fmt.Sprintf("list --limit %d", limit))
	if scans < 1 || scans > 20 || scripts < limit || scripts > limit+pageSize+pageSize/10 {
		t.Errorf("a list of %d locks sent %d SCANs and %d scripts", limit, scans, scripts)
	}
	if scans, scripts = calls("list --longest"); scans < 10 || scans > 300 || scripts < locks || scripts > locks+locks/10 {
		t.Errorf("a list of all locks sent %d SCANs and %d scripts", scans, scripts)
	}
}
