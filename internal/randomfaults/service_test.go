package randomfaults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/testservers"
)

// service is a running Redis of some topology. Its methods belong to one goroutine, except state.
type service struct {
	tb         testing.TB
	on         string
	addrs      []string
	masterName string
	nodes      []*testservers.Redis
	watchers   []*testservers.Redis // Sentinels
	cluster    *testservers.Cluster
	sentinel   *testservers.Sentinel
	version    string
}

// missed is for how long a server may be silent before the others take it for dead. Pauses of servers are shorter.
const missed = 3 * time.Second

// startService starts the servers of a topology; nil for those without.
func startService(tb testing.TB, on string) *service {
	s := startServers(tb, on)
	if s != nil {
		s.version = info(s.nodes[0], "redis_version")
	}
	return s
}

func startServers(tb testing.TB, on string) *service {
	switch on {
	case "node":
		server := testservers.StartRedis(tb, "--enable-debug-command", "local") // to have it load its data again
		return &service{tb: tb, on: on, addrs: []string{server.Addr()}, nodes: []*testservers.Redis{server}}
	case "sentinel":
		s := testservers.StartSentinel(tb)
		s.DownAfter(missed)
		return &service{
			tb: tb, on: on, addrs: s.Addrs(), masterName: s.MasterName(), nodes: s.Nodes(), watchers: s.Sentinels(), sentinel: s,
		}
	case "cluster":
		c := testservers.StartCluster(tb)
		c.DownAfter(missed)
		return &service{tb: tb, on: on, addrs: c.Addrs(), nodes: c.Nodes(), cluster: c}
	}
	return nil
}

// client is one of the parent. It talks to masters alone: for a moment a Sentinel may still name one that has come back as a replica, and
// shows what it had long ago until it has its master's data.
func (s *service) client() redis.UniversalClient {
	options := &redis.UniversalOptions{Addrs: s.addrs, MasterName: s.masterName}
	if s.sentinel != nil {
		options.OnConnect = func(ctx context.Context, conn *redis.Conn) error { // of Sentinels too
			role, err := conn.Do(ctx, "ROLE").Slice()
			if err == nil && role[0] == "slave" {
				err = errors.New("the server is a replica")
			}
			return err
		}
	}
	return redis.NewUniversalClient(options)
}

// dialled are the addresses of all servers that clients connect to.
func (s *service) dialled() (addrs []string) {
	for _, node := range slices.Concat(s.nodes, s.watchers) {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// masters are the nodes that keep locks now.
func (s *service) masters() (masters []*testservers.Redis) {
	if s.sentinel != nil {
		return []*testservers.Redis{s.sentinel.Master()}
	}
	for _, node := range s.nodes {
		if info(node, "role") == "master" {
			masters = append(masters, node)
		}
	}
	return masters
}

// someMaster is one of them, by a number that was drawn.
func (s *service) someMaster(n int) *testservers.Redis {
	masters := s.masters()
	if len(masters) == 0 {
		s.tb.Fatal("there is no master")
	}
	return masters[n%len(masters)]
}

// keyOn is a key that a master of a cluster keeps.
func (s *service) keyOn(master *testservers.Redis) string {
	for i := range 1000 {
		key := "key-" + strings.Repeat("x", i)
		if s.cluster.MasterOf(key) == master {
			return key
		}
	}
	s.tb.Fatal("a master keeps no keys")
	return ""
}

func (s *service) replicas(master *testservers.Redis) (replicas []*testservers.Redis) {
	if s.cluster != nil {
		return []*testservers.Redis{s.cluster.ReplicaOf(master)}
	}
	for _, node := range s.nodes {
		if node != master {
			replicas = append(replicas, node)
		}
	}
	return replicas
}

// successor waits for the next master after one that has died; key is one that it has, on a Cluster.
func (s *service) successor(old *testservers.Redis, key string) *testservers.Redis {
	if s.sentinel != nil {
		return s.sentinel.AwaitMaster(old)
	}
	return s.cluster.AwaitMaster(key, old)
}

// comeBack starts a master that has died as a replica of its successor, and waits until it has that one's data.
func (s *service) comeBack(old, successor *testservers.Redis) {
	if s.sentinel != nil {
		old.RestartAsReplica(successor)
	} else {
		old.Restart()
	}
	if !within(30*time.Second, func() bool { return info(old, "master_link_status") == "up" }) {
		s.tb.Errorf("%s is no replica within 30s", old.Addr())
	}
}

// caughtUp waits until the replicas of a master, which takes no writes, have all it has. It reports whether they have.
func (s *service) caughtUp(master *testservers.Redis, replicas []*testservers.Redis) bool {
	return within(1500*time.Millisecond, func() bool {
		offset := info(master, "master_repl_offset")
		return offset != "" && !slices.ContainsFunc(replicas, func(r *testservers.Redis) bool {
			return info(r, "slave_repl_offset") != offset
		})
	})
}

// state says who are masters, and since which fail-over; empty: it is not known.
func (s *service) state() string {
	for _, sentinel := range s.watchers {
		if text, err := sentinel.Do("SENTINEL", "MASTER", s.masterName); err == nil {
			_, epoch, _ := strings.Cut(text, "config-epoch\n")
			epoch, _, _ = strings.Cut(epoch, "\n")
			return epoch
		}
	}
	if s.cluster == nil {
		return ""
	}
	for _, node := range s.nodes {
		if text, err := node.Do("CLUSTER", "NODES"); err == nil {
			var masters []string
			for line := range strings.Lines(text) {
				// id, address, flags, master's id or "-", ping, pong, epoch, link, slots …
				if fields := strings.Fields(line); len(fields) > 8 && fields[3] == "-" {
					masters = append(masters, fields[0])
				}
			}
			slices.Sort(masters)
			return strings.Join(masters, ", ")
		}
	}
	return ""
}

// info is one field of a node's INFO.
func info(node *testservers.Redis, name string) string {
	text, _ := node.Do("INFO")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// within polls until done reports true, and reports whether that was in time.
func within(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
