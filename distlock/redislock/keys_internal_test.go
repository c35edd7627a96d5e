package redislock

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// A Cluster runs a script at the node of its KEYS, so a script must touch no other key.
func TestScripts_touchOnlyTheirKeys(t *testing.T) {
	server := servers.StartRedis(t)
	d := open(t, redis.UniversalOptions{Addrs: []string{server.Addr()}})
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	monitor := bufio.NewScanner(conn)
	monitor.Buffer(nil, 1<<20)
	if !monitor.Scan() || monitor.Text() != "+OK" {
		t.Fatalf("MONITOR: %q, %v", monitor.Text(), monitor.Err())
	}

	name := driver.Name{Namespace: "n", Key: "k"}
	owner := func(c string) driver.AcquireRequest {
		return driver.AcquireRequest{Name: name, Owner: strings.Repeat(c, 32), TTL: time.Minute}
	}
	ctx := context.Background()
	acquire := func(req driver.AcquireRequest, want driver.Outcome) driver.AcquireReply {
		t.Helper()
		reply, err := d.Acquire(ctx, req)
		if err != nil || reply.Outcome != want {
			t.Fatalf("Acquire: %+v, %v; want %d", reply, err, want)
		}
		return reply
	}
	release := func(req driver.ReleaseRequest) {
		t.Helper()
		req.Name = name
		if _, err := d.Release(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	grant := acquire(owner("a"), driver.Granted)
	for _, c := range []string{"b", "c", "d"} {
		waiting := owner(c)
		waiting.Alive, waiting.Seq = time.Minute, 1
		acquire(waiting, driver.Busy)
	}
	if reply, err := d.Raise(ctx, driver.RaiseRequest{Name: name, Owner: owner("a").Owner, Floor: grant.FenceEnd + 1}); err != nil || !reply.Held {
		t.Fatalf("Raise: %+v, %v", reply, err)
	}
	if reply := d.Extend(ctx, []driver.ExtendRequest{{Name: name, Owner: owner("a").Owner, TTL: time.Minute}})[0]; !reply.Held {
		t.Fatalf("Extend: %+v", reply)
	}
	if page, err := d.List(ctx, driver.ListRequest{Namespace: "n", Limit: 10, Waiters: 10}); err != nil || len(page.Names) != 1 || len(page.Names[0].Queue) != 3 {
		t.Fatalf("List: %+v, %v", page, err)
	}
	release(driver.ReleaseRequest{Owner: owner("a").Owner})
	release(driver.ReleaseRequest{Owner: owner("c").Owner, Leave: true, Tombstone: time.Minute})
	if state, err := d.Inspect(ctx, name); err != nil || state.Waiters != 1 {
		t.Fatalf("Inspect: %+v, %v", state, err)
	}
	if broken, err := d.Break(ctx, name, acquire(owner("b"), driver.Granted).Fence); err != nil || !broken {
		t.Fatalf("Break: %t, %v", broken, err)
	}
	acquire(owner("d"), driver.Granted)
	if err := admin.Echo(ctx, "the end").Err(); err != nil {
		t.Fatal(err)
	}

	var keys []string // of the script that runs
	commands := make(map[string]bool)
	for monitor.Scan() {
		line := monitor.Text()
		_, command, _ := strings.Cut(line, "] ")
		words := strings.Split(strings.Trim(command, `"`), `" "`)
		verb := strings.ToLower(words[0])
		switch {
		case strings.Contains(line, " lua] "):
			commands[verb] = true
			if verb != "time" && verb != "publish" && !slices.Contains(keys, words[1]) {
				t.Errorf("a script with the keys %q runs %q", keys, command)
			}
		case verb == "evalsha", verb == "eval":
			keys = words[3 : 3+int(words[2][0]-'0')]
		case verb == "echo":
			for _, want := range []string{"set", "setrange", "getex", "pexpire", "zadd", "zrem", "hset", "publish", "zremrangebyscore"} {
				if !commands[want] {
					t.Errorf("no script ran %q, so this test is too weak", want)
				}
			}
			return
		}
	}
	t.Error(monitor.Err())
}
