package distlock

import "testing"

// A step of the wall clock is of no account where the time spent suspended is known.
func TestClock_takesNoNoticeOfTheWallClock(t *testing.T) {
	for range 1000 {
		if ahead := now().ahead; ahead != 0 {
			t.Fatalf("the wall clock counts: %s", ahead)
		}
	}
}
