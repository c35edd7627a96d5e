package servers

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Topologies are the names of Redis that keeps a key on one server, in the order of
// docs/reports/faults-2026-11.md. StartTopology takes them.
var Topologies = []string{"node", "sentinel", "cluster"}

// Topology is a running Redis of one of the Topologies or Quorums, for tests that treat all of them
// alike. Its methods are safe for concurrent use; they report failures to the test that started it.
type Topology struct {
	Name     string    // one of Topologies or Quorums
	Node     *Redis    // of a "node"; nil for the others
	Sentinel *Sentinel // of a "sentinel"; nil for the others
	Cluster  *Cluster  // of a "cluster"; nil for the others
	Quorum   *Quorum   // of a "redlock3" or "redlock5"; nil for the others
	servers            // the one of the four that there is
}

type servers interface {
	URL() string     // for lockurl
	Addrs() []string // for a client: the node's, the sentinels' or those of all nodes
	Nodes() []*Redis // all that keep data, replicas included; their order stays the same
}

// StartTopology is StartRedis, StartSentinel, StartCluster or StartQuorum.
func StartTopology(tb testing.TB, name string, args ...string) *Topology {
	tb.Helper()
	t := &Topology{Name: name}
	switch name {
	case "node":
		t.Node = StartRedis(tb, args...)
		t.servers = t.Node
	case "sentinel":
		t.Sentinel = StartSentinel(tb, args...)
		t.servers = t.Sentinel
	case "cluster":
		t.Cluster = StartCluster(tb, args...)
		t.servers = t.Cluster
	case "redlock3":
		t.Quorum = StartQuorum(tb, 3, args...)
		t.servers = t.Quorum
	case "redlock5":
		t.Quorum = StartQuorum(tb, 5, args...)
		t.servers = t.Quorum
	default:
		tb.Fatalf("topology %q: there are %q", name, slices.Concat(Topologies, Quorums))
	}
	return t
}

// MasterName returns the name that a client asks the sentinels for; empty without sentinels.
func (t *Topology) MasterName() string {
	if t.Sentinel != nil {
		return masterName
	}
	return ""
}

// Sentinels returns the redis-sentinels; nil without. Two of them have to be left for a failover.
func (t *Topology) Sentinels() []*Redis {
	if t.Sentinel != nil {
		return slices.Clone(t.Sentinel.sentinels)
	}
	return nil
}

// Master returns the node that serves a Redis key now. The node may just have died. Of a Quorum, it
// is the first of all nodes, which all serve the key.
func (t *Topology) Master(key string) *Redis {
	switch {
	case t.Sentinel != nil:
		return t.Sentinel.Master()
	case t.Cluster != nil:
		return t.Cluster.MasterOf(key)
	case t.Quorum != nil:
		return t.Quorum.nodes[0]
	}
	return t.Node
}

// Masters returns the nodes that serve keys now. A Cluster's dead masters are missing.
func (t *Topology) Masters() []*Redis {
	if t.Sentinel != nil {
		return []*Redis{t.Sentinel.Master()}
	}
	return slices.DeleteFunc(t.Nodes(), func(r *Redis) bool { return r.Info("role") != "master" })
}

// Replicas returns the nodes that can take over from a master: none of a "node" or Quorum, one of a
// Cluster.
func (t *Topology) Replicas(master *Redis) []*Redis {
	switch {
	case t.Sentinel != nil:
		return without(t.Nodes(), master)
	case t.Cluster != nil:
		return []*Redis{t.Cluster.ReplicaOf(master)}
	}
	return nil
}

// AwaitReplicas waits until a master's replicas have all that it had at the time of the call.
func (t *Topology) AwaitReplicas(master *Redis) {
	master.tb.Helper()
	replicas := t.Replicas(master)
	if err := await(func() error { return master.followed(replicas...) }); err != nil {
		master.tb.Fatalf("await the replicas of %s: %v", master.Addr(), err)
	}
}

// AwaitMaster waits for the master of a Redis key that replaces old, which the test has killed or
// paused. The one server of a "node" is returned at once.
func (t *Topology) AwaitMaster(key string, old *Redis) *Redis {
	switch {
	case t.Sentinel != nil:
		return t.Sentinel.AwaitMaster(old)
	case t.Cluster != nil:
		return t.Cluster.AwaitMaster(key, old)
	}
	return t.Node
}

// ComeBack starts a dead master again, as a replica of its successor, and waits until it has the
// successor's data. The server of a "node" comes back empty.
func (t *Topology) ComeBack(old, successor *Redis) {
	old.tb.Helper()
	if t.Node != nil {
		old.Restart()
		return
	}
	var as []string
	if t.Sentinel != nil { // or it takes itself for a master, and takes writes, until the sentinels tell it
		as = []string{"--replicaof", "127.0.0.1 " + strconv.Itoa(successor.port)}
	}
	old.RestartWith(as...)
	Await(old.tb, settleTimeout, old.Addr()+" is a replica", func() bool { return old.Info("master_link_status") == "up" })
}

// Patient sets how long a server may be silent before it is taken for dead: at first 1 s. A node of
// a Cluster keeps that when it is restarted. It does nothing for a "node", which nothing replaces.
func (t *Topology) Patient(silence time.Duration) {
	ms := strconv.FormatInt(silence.Milliseconds(), 10)
	set := func(r *Redis, command ...string) {
		if _, err := r.Do(append(command, ms)...); err != nil {
			r.tb.Fatalf("set the patience of %s: %v", r.Addr(), err)
		}
	}
	for _, sentinel := range t.Sentinels() {
		set(sentinel, "SENTINEL", "SET", masterName, "down-after-milliseconds")
	}
	if t.Cluster == nil {
		return
	}
	for _, node := range t.Nodes() {
		node.mu.Lock()
		node.args = append(node.args, "--cluster-node-timeout", ms)
		node.mu.Unlock()
		set(node, "CONFIG", "SET", "cluster-node-timeout")
	}
}

// State identifies the masters: the text changes with each failover, but not when a slot moves. It
// is empty for a "node", and while no server answers.
func (t *Topology) State() string {
	if t.Sentinel != nil {
		return t.Sentinel.epoch()
	}
	if t.Cluster == nil {
		return ""
	}
	for _, node := range running(t.Nodes()) {
		if v, err := t.Cluster.view(node); err == nil {
			var masters []string
			for other, p := range v {
				if p.master == nil && p.slots != "" {
					masters = append(masters, other.Addr())
				}
			}
			slices.Sort(masters)
			return fmt.Sprint(masters)
		}
	}
	return ""
}

// Info returns one field of the server's INFO; empty if the field is missing or no answer comes.
func (r *Redis) Info(name string) string {
	text, _ := r.Do("INFO")
	return field(text, name)
}
