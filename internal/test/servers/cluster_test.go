package servers

import (
	"strings"
	"testing"
)

func TestStartCluster_isComplete(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, "--maxmemory", "8mb")
	if want := "redis+cluster://" + strings.Join(c.Addrs(), ","); c.URL() != want || len(c.Addrs()) != 6 {
		t.Errorf("URL() = %q, want %q of 6 nodes", c.URL(), want)
	}
	masters := make(map[*Redis]bool)
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		master := c.MasterOf(key)
		masters[master] = true
		mustDo(t, master, "OK", "SET", key, "value")
		replica := c.ReplicaOf(master)
		if _, err := replica.Do("GET", key); err == nil || !strings.HasSuffix(err.Error(), master.Addr()) {
			t.Errorf("GET at the replica: %v, want MOVED to %s", err, master.Addr())
		}
	}
	if len(masters) != 3 {
		t.Errorf("the keys are spread over %d masters, want 3", len(masters))
	}
	for _, node := range c.Nodes() {
		mustDo(t, node, "maxmemory\n8388608", "CONFIG", "GET", "maxmemory")
	}
}

func TestCluster_aSlotOnTheMoveRedirectsAndRefuses(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	old := c.MasterOf("{tag}")
	keys := []string{"{tag}here", "{tag}gone", "{tag}\r\n2", "{tag}\x00€"}
	for _, key := range keys {
		mustDo(t, old, "OK", "SET", key, "value")
	}
	finish := c.BeginMove("{tag}", "{tag}gone")
	if c.MasterOf("{tag}") != old {
		t.Error("the slot has another master already")
	}
	mustDo(t, old, "value", "GET", "{tag}here")
	if _, err := old.Do("MGET", "{tag}here", "{tag}gone"); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Errorf("MGET of both keys: %v, want TRYAGAIN", err)
	}
	_, err := old.Do("GET", "{tag}gone")
	finish()
	finish()
	master := c.MasterOf("{tag}")
	if !isRedirect(err, "ASK", master) {
		t.Errorf("GET of the moved key: %v, want ASK %s", err, master.Addr())
	}
	for _, key := range keys {
		mustDo(t, master, "value", "GET", key)
		if _, err := old.Do("GET", key); !isRedirect(err, "MOVED", master) {
			t.Errorf("GET %q: %v, want MOVED to %s", key, err, master.Addr())
		}
	}
}

// isRedirect tells whether an error is "MOVED slot address" or "ASK slot address".
func isRedirect(err error, kind string, to *Redis) bool {
	return err != nil && strings.HasPrefix(err.Error(), kind+" ") && strings.HasSuffix(err.Error(), " "+to.Addr())
}
