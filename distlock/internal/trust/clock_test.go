package trust

import (
	"testing"
	"time"
)

func TestClock_N_runsDuringSuspend(t *testing.T) {
	before := Now()
	defer Simulate(time.Hour)()
	if slept := Now().Sub(before); slept < time.Hour {
		t.Errorf("the clock ran for %s during a suspend of an hour", slept)
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
