package campaign

import (
	"slices"
	"testing"
	"time"
)

// Workers whose Lockers have another Namespace share sessions with the others, but no lock. The promises
// of one lock do not hold. The store still accepts no stale write, and loses nothing. The second run, of
// a store without a fence, finds stale writes.
func TestCampaign_S2_twoNamespaces(t *testing.T) {
	ofOneLock := []string{"S1", "N", "L", "fence", "history"}
	for _, broken := range []string{"", noFence} {
		for try := range 4 { // a busy machine may write too seldom
			p := planFor("node", drawn(), 4*time.Second)
			p.parted, p.broken, p.faults, p.workers, p.proxied = true, broken, []string{}, 3, 0
			c := newCampaign(t, p)
			c.run()
			kinds := make(map[string]int)
			for _, f := range c.wrong {
				if kinds[f.kind]++; broken == "" && !slices.Contains(ofOneLock, f.kind) {
					t.Errorf("seed %d: %v", p.seed, f)
				}
			}
			t.Logf("%q: %s; %d turns, ended: %v", broken, list(kinds), c.ledger.tally.turns, c.ledger.tally.endings)
			nothing := kinds["S1"] == 0 || broken == "" && c.ledger.tally.endings[refused] == 0
			missed := broken != "" && kinds["S2"] == 0
			switch {
			case (nothing || missed) && try < 3:
				continue
			case nothing:
				t.Errorf("%q: no two held a session at once, or none of them was refused: this tests nothing", broken)
			case missed:
				t.Errorf("seed %d: the store without a fence has accepted no stale write", p.seed)
			}
			break
		}
	}
}
