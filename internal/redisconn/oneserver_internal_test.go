package redisconn

import (
	"bufio"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/testservers"
)

// wantBatches checks which commands three calls make before and after the probe, and what it finds.
func wantBatches(t *testing.T, b *batches, all []wish, want probed, after ...string) {
	t.Helper()
	b.x.servers.Store(notProbed)
	for round, sent := range [][]string{{"evalsha 1", "evalsha 1", "evalsha 1"}, after} {
		some := all[3*round : 3*round+3]
		for i, got := range b.together(t, some, nil) {
			if !got.isGrant(some[i]) {
				t.Errorf("%d: %+v", i, got)
			}
		}
		b.wantSent(t, sent...)
		testservers.Await(t, 10*time.Second, "the end of the probe", func() bool { return b.x.servers.Load() > probing })
		if got := b.x.servers.Load(); got != want {
			t.Errorf("the probe has found %d, want %d", got, want)
		}
	}
}

func TestProbe_oneServer_takesBatches(t *testing.T) {
	b := batching(t, onNode(t))
	wantBatches(t, b, wishes(6), oneServer, "evalsha 3")
	marks := b.client.Keys(t.Context(), "n:{*}:probe").Val()
	if len(marks) != probeKeys {
		t.Errorf("marks %q", marks)
	}
	for _, key := range marks {
		if left := b.client.PTTL(t.Context(), key).Val(); left <= 0 || left > 10*time.Second {
			t.Errorf("%s stays for %s", key, left)
		}
	}
}

// A Cluster behind one address refuses the keys of a batch.
func TestProbe_keysOfDifferentSlots_goAlone(t *testing.T) {
	cluster := testservers.SharedTopology("cluster").Cluster
	node := cluster.MasterOf(keyOf(name))
	b := batching(t, redis.UniversalOptions{Addrs: []string{node.Addr()}})
	var all []wish
	for i := 0; len(all) < 6; i++ {
		if key := keyOf(nameOf(i)); cluster.MasterOf(key) == node {
			all = append(all, wish{key, fmt.Sprint("owner ", i), time.Minute})
			t.Cleanup(func() { b.client.Del(context.Background(), key) })
		}
	}
	wantBatches(t, b, all, severalServers, "evalsha 1", "evalsha 1", "evalsha 1")
}

func TestProbe_S1_spreadKeys_goAlone(t *testing.T) {
	servers := []string{testservers.StartRedis(t).Addr(), testservers.StartRedis(t).Addr()}
	b := batching(t, redis.UniversalOptions{Addrs: []string{spread(t, servers)}, Protocol: 2})
	for _, addr := range servers {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		for _, script := range []*Script{takeScript, inspectScript} {
			if err := script.Load(t.Context(), client).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantBatches(t, b, wishes(6), severalServers, "evalsha 1", "evalsha 1", "evalsha 1")

	// A proxy that sends few keys to the second server is found, too.
	few := append(slices.Repeat(servers[:1], 31), servers[1])
	x := open(t, redis.UniversalOptions{Addrs: []string{spread(t, few)}, Protocol: 2}).shared.exchange("")
	for range 10 {
		if got := x.probe("n:"); got != severalServers {
			t.Errorf("the probe has found %d, want %d", got, severalServers)
		}
	}
}

func TestProbe_noAnswer_isUnknown(t *testing.T) {
	server := testservers.StartRedis(t)
	for _, command := range []string{"ACL SETUSER some reset on >p ~n:* +@all -set", "REPLICAOF 127.0.0.1 1"} {
		if _, err := server.Do(strings.Fields(command)...); err != nil {
			t.Fatal(err)
		}
	}
	options, proxy := proxied(t)
	proxy.Refuse()
	for what, c := range map[string]struct {
		options redis.UniversalOptions
		want    probed
	}{
		"refused": {options, notProbed},
		"replica": {redis.UniversalOptions{Addrs: []string{server.Addr()}}, notProbed},
		"right":   {redis.UniversalOptions{Addrs: []string{server.Addr()}, Username: "some", Password: "p"}, severalServers},
	} {
		if got := open(t, c.options).shared.exchange("").probe("n:"); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
}

// spread is a proxy that sends a command to the server of its first key. It returns its address.
func spread(t *testing.T, servers []string) string {
	t.Helper()
	listener, err := testservers.Listen()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(conn, servers) })
		}
	})
	return listener.Addr().String()
}

// serve answers the commands of a connection one by one.
func serve(conn net.Conn, servers []string) {
	defer conn.Close()
	from := bufio.NewReader(conn)
	to, replies := make([]net.Conn, len(servers)), make([]*bufio.Reader, len(servers))
	for i, addr := range servers {
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer server.Close()
		to[i], replies[i] = server, bufio.NewReader(server)
	}
	for {
		command, err := readRESP(from)
		if err != nil {
			return
		}
		lines, place := strings.Split(command, "\r\n"), 0 // each word is two lines, after a first one
		if strings.HasPrefix(lines[2], "eval") {
			hash := fnv.New32a()
			_, _ = io.WriteString(hash, lines[2+2*firstKey])
			place = int(hash.Sum32()>>4) % len(servers)
		}
		if _, err := io.WriteString(to[place], command); err != nil {
			return
		}
		reply, err := readRESP(replies[place])
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// readRESP reads a command or a reply as it is.
func readRESP(from *bufio.Reader) (string, error) {
	text, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSpace(text[1:]))
	switch {
	case text[0] == '*' && err == nil:
		for range n {
			part, err := readRESP(from)
			if err != nil {
				return "", err
			}
			text += part
		}
	case text[0] == '$' && err == nil && n >= 0:
		body := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(from, body); err != nil {
			return "", err
		}
		text += string(body)
	}
	return text, nil
}
