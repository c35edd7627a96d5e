package servers

import (
	"strings"
	"testing"
)

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
