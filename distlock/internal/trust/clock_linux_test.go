package trust

import "testing"

// A step of the wall clock does not count where the time spent suspended is known.
func TestClock_ignoresWallClock(t *testing.T) {
	for range 1000 {
		if ahead := Now().ahead; ahead != 0 {
			t.Fatalf("the wall clock counts: %s", ahead)
		}
	}
}
