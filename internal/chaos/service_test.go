package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
)

// service is a running Redis of some topology.
type service struct {
	tb         testing.TB
	addrs      []string
	masterName string
	cluster    bool
	nodes      func() []*testservers.Redis
	master     func(key string) *testservers.Redis
	replicas   func(master *testservers.Redis) []*testservers.Redis // that may take over; none: the master itself comes back
	await      func(key string, old *testservers.Redis) *testservers.Redis
	back       func(old, master *testservers.Redis) // brings a dead master back
	state      func() string                        // who are masters, and since which fail-over; empty: it is not known
	known      string                               // the state after the last fail-over
}

// missed is for how long, in milliseconds, a server may be silent before the others take it for dead. On a machine that is busy enough
// for this campaign, a second goes by without much of an answer.
const missed = "3000"

var topologies = map[string]func(testing.TB, ...string) *service{
	"node": func(tb testing.TB, args ...string) *service {
		server := testservers.StartRedis(tb, args...)
		return &service{
			tb: tb, addrs: []string{server.Addr()},
			nodes:    func() []*testservers.Redis { return []*testservers.Redis{server} },
			master:   func(string) *testservers.Redis { return server },
			replicas: func(*testservers.Redis) []*testservers.Redis { return nil },
			state:    func() string { return "" },
		}
	},
	"sentinel": func(tb testing.TB, args ...string) *service {
		s := testservers.StartSentinel(tb, args...)
		for _, sentinel := range s.Sentinels() {
			if _, err := sentinel.Do("SENTINEL", "SET", s.MasterName(), "down-after-milliseconds", missed); err != nil {
				tb.Fatal(err)
			}
		}
		return &service{
			tb: tb, addrs: s.Addrs(), masterName: s.MasterName(),
			nodes:  s.Nodes,
			master: func(string) *testservers.Redis { return s.Master() },
			replicas: func(master *testservers.Redis) (others []*testservers.Redis) {
				for _, node := range s.Nodes() {
					if node != master {
						others = append(others, node)
					}
				}
				return others
			},
			await: func(_ string, old *testservers.Redis) *testservers.Redis { return s.AwaitMaster(old) },
			back:  (*testservers.Redis).RestartAsReplica,
			state: func() string {
				for _, sentinel := range s.Sentinels() {
					if text, err := sentinel.Do("SENTINEL", "MASTER", s.MasterName()); err == nil {
						_, epoch, _ := strings.Cut(text, "config-epoch\n")
						epoch, _, _ = strings.Cut(epoch, "\n")
						return epoch
					}
				}
				return ""
			},
		}
	},
	"cluster": func(tb testing.TB, args ...string) *service {
		c := testservers.StartCluster(tb, append([]string{"--cluster-node-timeout", missed}, args...)...)
		return &service{
			tb: tb, addrs: c.Addrs(), cluster: true,
			nodes:    c.Nodes,
			master:   c.MasterOf,
			replicas: func(master *testservers.Redis) []*testservers.Redis { return []*testservers.Redis{c.ReplicaOf(master)} },
			await:    c.AwaitMaster,
			state: func() string {
				for _, node := range c.Nodes() {
					if text, err := node.Do("CLUSTER", "NODES"); err == nil {
						var masters []string
						for line := range strings.Lines(text) {
							// id, address, flags, master's id or "-", ping, pong, epoch, link, slots …
							if fields := strings.Fields(line); len(fields) > 8 && fields[3] == "-" {
								masters = append(masters, fields[0]+" "+fields[6])
							}
						}
						slices.Sort(masters)
						return strings.Join(masters, ", ")
					}
				}
				return ""
			},
			back: func(old, _ *testservers.Redis) { old.Restart() }, // it refuses everything until it has learned who is master
		}
	},
}

// logOf is where Redis keeps a session.
func logOf(session string) string { return "session:" + redislock.HashTag(session) + "log" }

// place is that of an entry.
type place struct{ fence, n int64 }

func (p place) behind(q place) bool { return p.fence > q.fence || p.fence == q.fence && p.n > q.n }

// failover is one in which a master died.
type failover struct {
	killed int64 // when it was dead
	back   int64 // when it took writes again, although it was not the master any more; 0: it did not
	over   int64 // until it was told

	unasked bool             // a living master was replaced, so that nobody knows what was kept
	last    map[string]place // of the sessions that it had: the last entry of each at the replica that was promoted
	took    time.Duration    // until there was another master, or the same one again
}

// failOver kills the master of a session, waits for another one, and has the dead one come back as a replica, or as the empty master
// that it takes itself for. With cut, the master
// first loses its replicas, for so long. Without replicas the master comes back, with the data that it has on disk, and
// what runs around it is to stand still while that is looked at.
func (s *service) failOver(session string, sessions []string, cut time.Duration, asMaster bool, still func(bool)) failover {
	s.tb.Helper()
	key := logOf(session)
	if !s.undisturbed() {
		return failover{unasked: true}
	}
	defer func() { s.known = s.state() }()
	master := s.master(key)
	replicas := s.replicas(master)
	if cut > 0 && len(replicas) > 0 {
		master.Detach()
		time.Sleep(cut)
	}
	if len(replicas) == 0 {
		still(true)
		master.Kill()
		f := failover{killed: now()}
		start := time.Now()
		master.Restart()
		f.last = s.lastOf(master, sessions)
		f.took = time.Since(start)
		still(false)
		return f
	}
	master.Kill()
	start := time.Now()
	f := failover{killed: now()}
	lasts := make(map[*testservers.Redis]map[string]place)
	for _, replica := range replicas {
		s.awaitField(replica, "master_link_status", "down")
		lasts[replica] = s.lastOf(replica, sessions)
		if role := s.field(replica, "role"); role != "slave" {
			s.tb.Errorf("%s was asked for its last entries too late: its role is %s", replica.Addr(), role)
		}
	}
	promoted := s.awaitPromotion(replicas)
	if f.last = lasts[promoted]; f.last == nil {
		return f // the test has failed
	}
	// At once: a new master may be one that refuses to write until it has a replica.
	var returning sync.WaitGroup
	returning.Go(func() {
		if asMaster {
			f.back = now()
			master.Restart()
			s.awaitField(master, "role", "slave")
			f.over = now()
		} else {
			s.back(master, promoted)
		}
	})
	s.await(key, master)
	f.took = time.Since(start)
	returning.Wait()
	s.awaitField(master, "master_link_status", "up")
	f.unasked = s.master(key) != promoted
	return f
}

// awaitPromotion waits until one of the replicas of a dead master is master.
func (s *service) awaitPromotion(replicas []*testservers.Redis) *testservers.Redis {
	s.tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, replica := range replicas {
			if s.field(replica, "role") == "master" {
				return replica
			}
		}
	}
	s.tb.Error("no replica is promoted within 30s")
	return nil
}

// undisturbed reports whether nobody has replaced a master unasked since the last fail-over, or the start.
func (s *service) undisturbed() bool {
	state := s.state()
	return s.known == "" || state == "" || s.known == state
}

// hangUp closes the connections of all clients, with the answers that are on their way.
func (s *service) hangUp() {
	for _, node := range s.nodes() {
		_, _ = node.Do("CLIENT", "KILL", "TYPE", "normal") // it may be dead
	}
}

// lastOf asks one node for the last entries of sessions. Those of other masters are left out.
func (s *service) lastOf(node *testservers.Redis, sessions []string) map[string]place {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	if s.cluster {
		if err := conn.ReadOnly(ctx).Err(); err != nil {
			s.tb.Errorf("%s: %v", node.Addr(), err)
		}
	}
	cmds := make(map[string]*redis.XMessageSliceCmd)
	_, _ = conn.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		for _, session := range sessions {
			cmds[session] = pipe.XRevRangeN(ctx, logOf(session), "+", "-", 1)
		}
		return nil
	})
	last := make(map[string]place)
	for session, cmd := range cmds {
		entries, err := cmd.Result()
		switch {
		case redis.HasErrorPrefix(err, "MOVED"):
			continue
		case err != nil:
			s.tb.Errorf("the last entry of %s at %s: %v", session, node.Addr(), err)
		}
		last[session] = place{}
		if len(entries) > 0 {
			p, err := placeOf(entries[0].ID)
			if err != nil {
				s.tb.Error(err)
			}
			last[session] = p
		}
	}
	return last
}

func placeOf(id string) (p place, err error) {
	ms, seq, _ := strings.Cut(id, "-")
	if p.fence, err = strconv.ParseInt(ms, 10, 64); err == nil {
		p.n, err = strconv.ParseInt(seq, 10, 64)
	}
	if err != nil {
		err = fmt.Errorf("%q is no entry's ID: %w", id, err)
	}
	return p, err
}

// field is one of INFO replication.
func (s *service) field(node *testservers.Redis, name string) string {
	info, _ := node.Do("INFO", "replication")
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (s *service) awaitField(node *testservers.Redis, name, want string) {
	s.tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); s.field(node, name) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.tb.Errorf("%s of %s is not %s within 30s", name, node.Addr(), want)
			return
		}
	}
}
