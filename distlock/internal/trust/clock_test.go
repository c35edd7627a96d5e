package trust

import (
	"testing"
	"time"
)

func TestClock_N_runsDuringSuspend(t *testing.T) {
	before := Now()
	defer Simulate(time.Hour, 0)()
	if slept := Now().Sub(before); slept < time.Hour {
		t.Errorf("the clock ran for %s during a suspend of an hour", slept)
	}
}

func TestWallRanAhead_nearZeroOnRunningMachine(t *testing.T) {
	defer func(real time.Time) { origin = real }(origin)
	origin = origin.Add(-time.Hour)
	if ahead := wallRanAhead(); ahead.Abs() > time.Second {
		t.Errorf("the wall clock is %s ahead of the monotonic one", ahead)
	}
}

func TestClock_neverGoesBack_ignoresShortReadings(t *testing.T) {
	var s sleeping
	for _, c := range []struct{ seen, want time.Duration }{
		{-300, 0}, {5 * time.Millisecond, 5 * time.Millisecond}, {5*time.Millisecond + 900, 5 * time.Millisecond},
		{-time.Second, 5 * time.Millisecond}, {time.Hour, time.Hour}, {time.Minute, time.Hour},
	} {
		s.observe(c.seen)
		if got := time.Duration(s.longest.Load()); got != c.want {
			t.Errorf("after %s: %s, want %s", c.seen, got, c.want)
		}
	}
}
