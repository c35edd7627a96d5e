package servers

import (
	"slices"
	"testing"
	"time"
)

func TestTopology_replacesItsMaster(t *testing.T) {
	for _, name := range Topologies {
		for how, down := range map[string]func(*Redis){"killed": (*Redis).Kill, "paused": (*Redis).Pause} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				s := StartTopology(t, name)
				old, before := s.Master("key"), s.State()
				replicas := s.Replicas(old)
				if !slices.Contains(s.Masters(), old) || !slices.Contains(s.Nodes(), old) || slices.Contains(replicas, old) {
					t.Fatalf("%s is the master, of the masters %v and nodes %v; its replicas are %v",
						old.Addr(), addrs(s.Masters()), addrs(s.Nodes()), addrs(replicas))
				}
				mustDo(t, old, "OK", "SET", "key", "kept")
				if name == "node" {
					old.Kill()
					s.ComeBack(old, nil)
					mustDo(t, s.AwaitMaster("key", old), "0", "EXISTS", "key")
					return
				}
				s.AwaitReplicas(old)
				old.Detach()
				mustDo(t, old, "OK", "SET", "key", "lost")
				down(old)
				master := s.AwaitMaster("key", old)
				mustDo(t, master, "kept", "GET", "key")
				if !slices.Contains(replicas, master) || s.State() == before {
					t.Errorf("the new master %s was one of %v; the state was %s and is %s",
						master.Addr(), addrs(replicas), before, s.State())
				}
				s.ComeBack(old, master)
				if _, err := old.Do("SET", "key", "other"); err == nil || !slices.Contains(s.Replicas(master), old) {
					t.Errorf("the old master is back as a %s", old.Info("role"))
				}
				s.Patient(time.Minute)
				master.Pause()
				time.Sleep(3 * time.Second) // within which it would have been replaced
				master.Resume()
				if s.AwaitMaster("key", nil) != master {
					t.Error("a master that was silent for a moment has been replaced")
				}
			})
		}
	}
}
