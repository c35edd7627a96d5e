package doctor

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestExamine_Cluster(t *testing.T) {
	t.Parallel()
	c := servers.StartCluster(t, durable...)
	converse(t, c.URL(), c.URL())
	shows(t, finds(t, c.URL(), c.URL()), OK, "namespace", "the locks of 1 sessions")
	slow := slices.Repeat([]string{"warning failover time"}, len(c.Nodes())) // cluster-node-timeout is 1 s
	finds(t, c.URL()+"?ttl=1s&read_timeout=300ms", "", slow...)
	node := c.Nodes()[0]
	do(t, node, "CLUSTER", "DELSLOTS", "7")
	ready(t, func() bool {
		state, _ := node.Do("CLUSTER", "INFO")
		return strings.Contains(state, "cluster_state:fail")
	})
	shows(t, examine(t, c.URL(), ""), Problem, "slots", "16383 of 16384 slots")
	nothing := examine(t, "redis+cluster://"+freeAddr(t), "")
	shows(t, nothing, Problem, "slots", "connection refused")
	alone := servers.StartRedis(t, durable...)
	shows(t, examine(t, "redis+cluster://"+alone.Addr(), ""), Problem, "slots", "Use redis://")
}

func ready(t *testing.T, is func() bool) {
	t.Helper()
	if !servers.Within(10*time.Second, is) {
		t.Fatal("not ready within 10 s")
	}
}

func TestExamine_Sentinel(t *testing.T) {
	t.Parallel()
	s := servers.StartSentinel(t, slices.Concat(durable, []string{"--min-replicas-to-write", "1"})...)
	finds(t, s.URL(), "")
	shows(t, examine(t, strings.Replace(s.URL(), "master_name=", "master_name=x", 1), ""), Problem, "sentinel", "SENTINEL MASTERS")
	slow := slices.Repeat([]string{"warning failover time"}, 3) // down-after-milliseconds is 1 s
	finds(t, s.URL()+"&ttl=1s&read_timeout=300ms", "", slow...)
	silent, err := servers.Listen() // and never accepts
	must(t, err)
	defer silent.Close()
	hangs := strings.Replace(s.URL(), "://", "://"+silent.Addr().String()+",", 1) + "&read_timeout=1s"
	shows(t, finds(t, hangs, "", "problem sentinel"), Problem, "sentinel", "Start the Sentinel")
	do(t, s.Master(), "CONFIG", "SET", "min-replicas-to-write", "0")
	shows(t, finds(t, s.URL(), "", "warning replicas"), Warning, "replicas", "CONFIG SET min-replicas-to-write 1")
}

func TestExamine_Redlock3(t *testing.T) {
	t.Parallel()
	q := servers.StartQuorum(t, 3)
	a := q.Addrs()
	const delay = "?restart_delay=1s&ttl=1s&read_timeout=300ms"
	url := "redlock+redis://" + strings.Join(a, ",")
	for _, node := range q.Nodes() { // each: the quorum of a later case needs them all
		ready(t, func() bool {
			seconds, _ := strconv.Atoi(node.Info("uptime_in_seconds"))
			return seconds > 1
		})
	}
	finds(t, url+delay, "")

	store := "redis://" + a[1] + "?read_timeout=300ms"
	converse(t, url+delay, store)
	do(t, q.Nodes()[0], "FLUSHALL")
	shows(t, finds(t, url+delay, store), OK, "namespace", "the locks of 1 sessions")
	minority := "redlock+redis://" + a[0] + "," + freeAddr(t) + "," + freeAddr(t)
	shows(t, finds(t, minority+delay, store, "problem connection", "problem connection", "problem locks",
		"warning persistence"), Note, "namespace", "not compared")

	lost := "redlock+redis://" + a[0] + "," + a[1] + "," + freeAddr(t)
	finds(t, lost+delay, "", "problem connection")
	do(t, q.Nodes()[2], "REPLICAOF", "127.0.0.1", "1")
	finds(t, url+delay, "", "problem role")
}
