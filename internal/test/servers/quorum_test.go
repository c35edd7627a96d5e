package servers

import (
	"slices"
	"strings"
	"testing"
)

func TestRedlock3_serversAreIndependent(t *testing.T) {
	s := StartTopology(t, "redlock3")
	nodes := s.Nodes()
	if s.Quorum.Size() != 2 || len(nodes) != 3 || !slices.Equal(s.Masters(), nodes) || s.Master("key") != nodes[0] {
		t.Errorf("%d of the nodes %v, with the masters %v, are a quorum", s.Quorum.Size(), addrs(nodes), addrs(s.Masters()))
	}
	if want := "redlock+redis://" + strings.Join(s.Addrs(), ",") + "/0"; s.URL() != want {
		t.Errorf("the URL is %s, want %s", s.URL(), want)
	}
	for i, node := range nodes {
		mustDo(t, node, "OK", "SET", "key", string(rune('a'+i)))
	}
	nodes[0].Kill()
	nodes[1].Pause()
	mustDo(t, nodes[2], "c", "GET", "key")
	nodes[1].Resume()
	mustDo(t, nodes[1], "b", "GET", "key")
	nodes[0].Restart()
	mustDo(t, nodes[0], "0", "EXISTS", "key")
}
