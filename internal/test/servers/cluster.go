package servers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	slots          = 16384
	clusterMasters = 3
	nodeTimeout    = "1000" // milliseconds
)

// Cluster is a Redis Cluster of three masters with a replica each. Its methods are safe for
// concurrent use; they report failures to the test that started it.
type Cluster struct {
	group // masters and replicas
	tb    testing.TB
	ids   map[string]*Redis // by node ID
}

// StartCluster starts six servers. It returns once all of them find the cluster well, and the
// replicas have their masters' data. The args go to each node: neither those of StartRedis, nor a
// password.
//
// A master that has not answered for a second is replaced a second or two later. Until then, the
// whole cluster refuses its keys. A restarted node has its place, and no data: a master that is
// back before it was missed is empty, and empties its replica. It refuses its keys for 2 seconds,
// for which AwaitMaster waits.
func StartCluster(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, ids: make(map[string]*Redis)}
	for range 2 * clusterMasters {
		node := newServer(tb, "redis-server", slices.Concat(replicated, []string{
			"--cluster-node-timeout", nodeTimeout,
			"--cluster-replica-validity-factor", "0",
			"--cluster-allow-replica-migration", "no",
		}, args))
		node.cluster = true
		c.nodes = append(c.nodes, node)
	}
	launch(tb, c.nodes...)
	if err := c.assemble(); err != nil {
		tb.Fatalf("start Cluster: %v", err)
	}
	return c
}

// assemble makes nodes that know nothing of each other a cluster.
func (c *Cluster) assemble() error {
	masters, replicas := c.nodes[:clusterMasters], c.nodes[clusterMasters:]
	for i, node := range c.nodes {
		id, err := node.Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		c.ids[id] = node
		// Equal epochs are a conflict, which the nodes would take time to resolve.
		if _, err := node.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	for i, master := range masters {
		first, end := i*slots/clusterMasters, (i+1)*slots/clusterMasters
		if _, err := master.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(end-1)); err != nil {
			return err
		}
	}
	if err := c.meet(); err != nil {
		return err
	}
	met := time.Now()
	for i, replica := range replicas {
		// Refused until the two have met.
		if err := await(func() error {
			_, err := replica.Do("CLUSTER", "REPLICATE", c.id(masters[i]))
			if err != nil && time.Since(met) > 2*time.Second { // a node gives up a slow handshake
				met = time.Now()
				err = errors.Join(err, c.meet())
			}
			return err
		}); err != nil {
			return err
		}
	}
	return await(func() error {
		if _, err := c.agreed(); err != nil {
			return err
		}
		for i, master := range masters {
			if err := master.followed(replicas[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// meet introduces each node to all others, because gossip alone takes seconds.
func (c *Cluster) meet() error {
	for i, node := range c.nodes {
		for _, other := range c.nodes[i+1:] {
			if _, err := node.Do("CLUSTER", "MEET", "127.0.0.1",
				strconv.Itoa(other.port), strconv.Itoa(other.busPort())); err != nil {
				return err
			}
		}
	}
	return nil
}

// URL returns the nodes' addresses as a redis+cluster:// URL.
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// MasterOf returns the node that serves key: the one that all running nodes name, which may just
// have died.
func (c *Cluster) MasterOf(key string) *Redis {
	c.tb.Helper()
	slot := c.slotOf(key)
	return awaited(c.tb, fmt.Sprintf("master of slot %d", slot), func() (*Redis, error) { return c.owner(slot) })
}

// ReplicaOf returns a running replica of a master, which itself may be dead.
func (c *Cluster) ReplicaOf(master *Redis) *Redis {
	c.tb.Helper()
	return awaited(c.tb, "replica of "+master.Addr(), func() (*Redis, error) {
		for _, node := range running(without(c.nodes, master)) {
			view, err := c.view(node)
			if err != nil {
				return nil, err
			}
			if view[node].master == master {
				return node, nil
			}
		}
		return nil, errors.New("no running node is its replica")
	})
}

// AwaitMaster waits for another master of key than old, which the test has killed or paused; nil:
// for any. By then all running nodes name it and find the cluster well, and it takes writes to key.
func (c *Cluster) AwaitMaster(key string, old *Redis) *Redis {
	c.tb.Helper()
	slot := c.slotOf(key)
	return awaited(c.tb, fmt.Sprintf("await a new master of slot %d", slot), func() (*Redis, error) {
		view, err := c.agreed()
		if err != nil {
			return nil, err
		}
		master := view.owner(slot)
		if master == nil || master == old {
			return nil, fmt.Errorf("slot %d has no other master", slot)
		}
		return master, master.writable(key)
	})
}

func (c *Cluster) slotOf(key string) int {
	c.tb.Helper()
	for _, node := range running(c.nodes) {
		reply, err := node.Do("CLUSTER", "KEYSLOT", key)
		if err != nil {
			continue // it may be about to die
		}
		slot, err := strconv.Atoi(reply)
		if err != nil {
			c.tb.Fatalf("slot of %q: %v", key, err)
		}
		return slot
	}
	c.tb.Fatalf("slot of %q: no node answers", key)
	return 0
}

func (c *Cluster) id(node *Redis) string {
	for id, n := range c.ids {
		if n == node {
			return id
		}
	}
	return ""
}
