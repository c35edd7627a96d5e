package servers

import (
	"strings"
	"testing"
)

// Quorums are the names of the topologies of 3 and of 5 independent servers. StartTopology takes
// them, too.
var Quorums = []string{"redlock3", "redlock5"}

// Quorum is an odd number of independent redis-servers, each with its own data. Together they keep
// the locks of distlock/redlock.
type Quorum struct{ group }

// StartQuorum starts n servers side by side. The args are those of StartRedis.
func StartQuorum(tb testing.TB, n int, args ...string) *Quorum {
	tb.Helper()
	q := &Quorum{}
	for range n {
		q.nodes = append(q.nodes, newServer(tb, "redis-server", args))
	}
	launch(tb, q.nodes...)
	return q
}

// URL returns the servers as a redlock+redis:// URL of database 0.
func (q *Quorum) URL() string { return "redlock+redis://" + strings.Join(q.Addrs(), ",") + "/0" }

// Size returns how many servers are a quorum.
func (q *Quorum) Size() int { return len(q.nodes)/2 + 1 }
