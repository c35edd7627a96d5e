package servers

import (
	"slices"
	"strings"
	"testing"
)

func TestStartSentinel_isComplete(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, "--maxmemory", "8mb")
	master, replicas := s.Master(), without(s.Nodes(), s.Master())
	if len(replicas) != 2 || slices.Contains(replicas, master) || len(s.Nodes()) != 3 || len(s.Addrs()) != 3 {
		t.Fatalf("master %s, replicas %v of nodes %v with sentinels %v",
			master.Addr(), addrs(replicas), addrs(s.Nodes()), s.Addrs())
	}
	want := "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "/0?master_name=" + s.MasterName()
	if s.URL() != want {
		t.Errorf("URL() = %q, want %q", s.URL(), want)
	}
	for _, sentinel := range s.Sentinels() {
		host, port, _ := strings.Cut(master.Addr(), ":")
		mustDo(t, sentinel, host+"\n"+port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName())
	}
	for _, node := range s.Nodes() {
		mustDo(t, node, "maxmemory\n8388608", "CONFIG", "GET", "maxmemory")
	}
	mustDo(t, master, "OK", "SET", "key", "value")
	for _, replica := range replicas {
		Await(t, settleTimeout, "a replica has the key", func() bool {
			value, err := replica.Do("GET", "key")
			return value == "value" && err == nil
		})
	}
	s.Sentinels()[0].Kill() // two of three are enough
	master.Kill()
	if s.AwaitMaster(master) != s.Master() {
		t.Error("the sentinels that are left name another master")
	}
}
