package scenario

import (
	"slices"
	"testing"
	"time"
)

func TestSumUp_countsWhoStarves(t *testing.T) {
	ms := func(n ...time.Duration) (times []time.Duration) {
		for _, d := range n {
			times = append(times, d*time.Millisecond)
		}
		return times
	}
	sum := sumUp([]crowdResult{
		{Commands: 10, Members: []crowdMember{{Waits: ms(1, 2, 3, 4)}, {Waits: ms(5), Unfinished: 7 * time.Millisecond, Faults: Faults{2, "late"}}}},
		{Commands: 2, Members: []crowdMember{{Unfinished: 500 * time.Millisecond}}},
	}, 500*time.Millisecond)
	if sum.perSecond != 10 {
		t.Errorf("%v acquisitions per second, want 10", sum.perSecond)
	}
	if sum.callsPerAcquisition != 2.4 {
		t.Errorf("%v calls per acquisition, want 2.4", sum.callsPerAcquisition)
	}
	if sum.minMaxShare != 0 {
		t.Errorf("a starved goroutine has a share of %v, want 0", sum.minMaxShare)
	}
	if sum.faults != (Faults{2, "late"}) {
		t.Errorf("faults %v", sum.faults)
	}
	if longest := slices.Max(sum.waits); longest != 500*time.Millisecond || len(sum.waits) != 7 {
		t.Errorf("%d waits, the longest %s, want 7 with the unfinished one of 500ms", len(sum.waits), longest)
	}
}
