package testservers

import (
	"slices"
	"testing"
	"time"
)

func TestTopology_deadMasterIsReplaced(t *testing.T) {
	for _, name := range Topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := StartTopology(t, name)
			s.Patient(500 * time.Millisecond)
			old, before := s.Master("key"), s.State()
			replicas := s.Replicas(old)
			if !slices.Contains(s.Masters(), old) || slices.Contains(replicas, old) || !slices.Contains(s.Nodes(), old) {
				t.Fatalf("%s is the master, of the masters %v and nodes %v; its replicas are %v",
					old.Addr(), addrs(s.Masters()), addrs(s.Nodes()), addrs(replicas))
			}
			old.Kill()
			if name == "node" {
				s.ComeBack(old, nil)
			}
			master := s.AwaitMaster("key", old)
			mustDo(t, master, "OK", "SET", "key", "value")
			if name == "node" {
				return
			}
			if !slices.Contains(replicas, master) || s.State() == before {
				t.Errorf("the new master %s was one of %v; the state was %s and is %s", master.Addr(), addrs(replicas), before, s.State())
			}
			s.ComeBack(old, master)
			if old.Info("role") != "slave" || !slices.Contains(s.Replicas(master), old) {
				t.Errorf("the old master is a %s", old.Info("role"))
			}
		})
	}
}

func TestWithin_pollsUntilDoneOrTooLate(t *testing.T) {
	polls := 0
	if !Within(time.Minute, func() bool { polls++; return polls == 3 }) || polls != 3 {
		t.Errorf("it polled %d times, want 3", polls)
	}
	start := time.Now()
	if Within(30*time.Millisecond, func() bool { return false }) {
		t.Error("it reports what never was")
	}
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Errorf("it gave up after %s", took)
	}
}
