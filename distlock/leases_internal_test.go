package distlock

import (
	"math/rand/v2"
	"testing"
)

func TestLeaseList_isTheSetOfThoseAddedAndNotRemoved(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var s leaseList
		all := make([]*Lease, 6)
		for i := range all {
			all[i] = &Lease{}
		}
		want := make(map[*Lease]bool)
		for range 30 {
			le := all[random.IntN(len(all))]
			if random.IntN(2) == 0 && !want[le] {
				s.add(le)
				want[le] = true
			} else { // also of one that is not in it
				s.remove(le)
				delete(want, le)
			}
			n := 0
			var prev *Lease
			for at := s.first; at != nil; prev, at = at, at.listed.next {
				if n++; !want[at] || at.listed.prev != prev || n > len(all) {
					t.Fatalf("entry %d of %d: in the set %t, after the one before it %t", n, len(want), want[at], at.listed.prev == prev)
				}
			}
			if n != len(want) {
				t.Fatalf("%d entries, want %d", n, len(want))
			}
			for _, le := range all {
				if !want[le] && le.listed != (listed{}) {
					t.Fatal("one that is not in it keeps others alive")
				}
			}
		}
	}
}
