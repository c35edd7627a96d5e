package servers

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The name by which the sentinels know their master.
const masterName = "belugalock"

// replicated has every node, of a Sentinel or Cluster, replicate at once instead of waiting for
// others to share the snapshot with. A master that is told to end does not wait for its replicas.
var replicated = []string{
	"--repl-diskless-sync", "yes",
	"--repl-diskless-sync-delay", "0",
	"--repl-ping-replica-period", "1",
	"--shutdown-timeout", "0",
}

// Sentinel is a master with two replicas and the three redis-sentinels that watch them. Its methods
// are safe for concurrent use; they report failures to the test that started it.
type Sentinel struct {
	group     // the master and the replicas
	tb        testing.TB
	sentinels []*Redis
}

// StartSentinel starts a master, two replicas and three Sentinels, and returns once they know each
// other and have their data. The args go to the nodes: neither those of StartRedis, nor a password.
//
// A master that has not answered for a second is replaced a second or two later. A restarted node
// has its last role, and no data: a master that is back before it was missed is empty, and empties
// its replicas.
func StartSentinel(tb testing.TB, args ...string) *Sentinel {
	tb.Helper()
	s := &Sentinel{tb: tb}
	for range 3 {
		node := newServer(tb, "redis-server", slices.Concat(replicated, args))
		node.remember(tb)
		s.nodes = append(s.nodes, node)
	}
	for range 3 {
		sentinel := newServer(tb, "redis-sentinel", nil)
		sentinel.remember(tb)
		sentinel.setup = impatience
		s.sentinels = append(s.sentinels, sentinel)
	}
	launch(tb, slices.Concat(s.nodes, s.sentinels)...)
	if err := s.assemble(); err != nil {
		tb.Fatalf("start Sentinel: %v", err)
	}
	return s
}

// impatience shortens what the sentinels do every few seconds, in milliseconds: to ask the nodes
// for their state, to tell each other and to connect again. Stalls of a busy machine are not to put
// them into tilt mode, in which they do nothing for half a minute.
var impatience = strings.Fields("SENTINEL DEBUG " +
	"info-period 500 publish-period 200 ask-period 200 min-link-reconnect-period 1000 " +
	"tilt-trigger 10000 tilt-period 1000")

// assemble makes servers that know nothing of each other a Sentinel.
func (s *Sentinel) assemble() error {
	master, replicas := s.nodes[0], s.nodes[1:]
	port := strconv.Itoa(master.port)
	for _, replica := range replicas {
		if _, err := replica.Do("REPLICAOF", "127.0.0.1", port); err != nil {
			return err
		}
		if _, err := replica.Do("CONFIG", "REWRITE"); err != nil {
			return err
		}
	}
	// The sentinels learn the replicas from the master's first answer, if they are there by then.
	if err := await(func() error { return master.followed(replicas...) }); err != nil {
		return err
	}
	for _, sentinel := range s.sentinels {
		if _, err := sentinel.Do("SENTINEL", "MONITOR", masterName, "127.0.0.1", port, "2"); err != nil {
			return err
		}
		if _, err := sentinel.Do("SENTINEL", "SET", masterName,
			"down-after-milliseconds", "1000",
			"failover-timeout", "3000",
			"parallel-syncs", "2",
		); err != nil {
			return err
		}
	}
	return await(func() error {
		var errs []error
		for _, sentinel := range s.sentinels {
			errs = append(errs, knowsAll(sentinel))
		}
		return errors.Join(errs...)
	})
}

// knowsAll returns nil if a sentinel knows all other Sentinels, and could fail over.
func knowsAll(sentinel *Redis) error {
	usable, err := sentinel.probe("SENTINEL", "CKQUORUM", masterName)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(usable, "OK 3 ") {
		return fmt.Errorf("sentinel %s: %s", sentinel.Addr(), usable)
	}
	replicas, err := sentinel.probe("SENTINEL", "REPLICAS", masterName)
	if err != nil {
		return err
	}
	if n := strings.Count(replicas, "master-link-status\nok"); n != 2 {
		return fmt.Errorf("sentinel %s sees %d of 2 replicas linked to their master", sentinel.Addr(), n)
	}
	return nil
}

// Addrs returns the sentinels' hosts and ports.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// URL returns database 0 of the master as a redis+sentinel:// URL.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "/0?master_name=" + masterName
}

// Master returns the node that a majority of the sentinels names as the master now. It does not ask
// the master, which may be dead.
func (s *Sentinel) Master() *Redis {
	s.tb.Helper()
	return awaited(s.tb, "master of the Sentinel", s.named)
}

// AwaitMaster waits for the master that replaces old, which the test has killed or paused, and
// returns it: a majority of the sentinels names it, and it takes writes.
func (s *Sentinel) AwaitMaster(old *Redis) *Redis {
	s.tb.Helper()
	return awaited(s.tb, "await a new master of the Sentinel", func() (*Redis, error) {
		master, err := s.named()
		if err != nil {
			return nil, err
		}
		if master == old {
			return nil, fmt.Errorf("the sentinels still name %s", old.Addr())
		}
		return master, master.writable("servers:absent")
	})
}

// named returns the node that a majority of the sentinels, of those that run, names as the master.
func (s *Sentinel) named() (*Redis, error) {
	votes := make(map[string]int)
	var errs []error
	for _, sentinel := range running(s.sentinels) {
		addr, err := masterOf(sentinel)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		votes[addr]++
	}
	for _, node := range s.nodes {
		if votes[node.Addr()] > len(s.sentinels)/2 {
			return node, nil
		}
	}
	return nil, errors.Join(append(errs, fmt.Errorf("no majority of the sentinels names one master: %v", votes))...)
}

// epoch returns the number of the last completed failover, as the newest of the running sentinels
// has it.
func (s *Sentinel) epoch() (newest string) {
	for _, sentinel := range running(s.sentinels) {
		text, err := sentinel.probe("SENTINEL", "MASTER", masterName)
		_, epoch, _ := strings.Cut(text, "config-epoch\n")
		epoch, _, _ = strings.Cut(epoch, "\n")
		if err == nil && (len(epoch) > len(newest) || len(epoch) == len(newest) && epoch > newest) {
			newest = epoch
		}
	}
	return newest
}

// masterOf returns the address that one sentinel gives to clients.
func masterOf(sentinel *Redis) (string, error) {
	reply, err := sentinel.probe("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
	if err != nil {
		return "", err
	}
	host, port, _ := strings.Cut(reply, "\n")
	return net.JoinHostPort(host, port), nil
}

// group is the servers that keep data.
type group struct{ nodes []*Redis }

// Nodes returns the servers. Their order stays the same.
func (g group) Nodes() []*Redis { return slices.Clone(g.nodes) }

// Addrs returns the hosts and ports of the servers.
func (g group) Addrs() []string { return addrs(g.nodes) }

func addrs(servers []*Redis) (addrs []string) {
	for _, r := range servers {
		addrs = append(addrs, r.Addr())
	}
	return addrs
}

// running returns the servers that are neither dead nor paused.
func running(servers []*Redis) []*Redis {
	return slices.DeleteFunc(slices.Clone(servers), func(r *Redis) bool { return !r.up() })
}

func without(servers []*Redis, server *Redis) []*Redis {
	return slices.DeleteFunc(slices.Clone(servers), func(r *Redis) bool { return r == server })
}

// StartSentinelFor starts one redis-sentinel on a free port of 127.0.0.1, which names the server at
// addr as the master MasterName. The args are added to its command line. It replaces no master.
func StartSentinelFor(tb testing.TB, addr string, args ...string) *Redis {
	tb.Helper()
	sentinel := newServer(tb, "redis-sentinel", args)
	sentinel.remember(tb)
	launch(tb, sentinel)
	host, port, _ := net.SplitHostPort(addr)
	if _, err := sentinel.Do("SENTINEL", "MONITOR", masterName, host, port, "1"); err != nil {
		tb.Fatalf("start a sentinel: %v", err)
	}
	return sentinel
}
