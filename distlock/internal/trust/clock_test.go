package trust

import (
	"testing"
	"time"
)

func TestClock_N_runsDuringSuspend(t *testing.T) {
	suspended, ran, before := Suspended, WallRan, Now()
	defer func() { Suspended, WallRan = suspended, ran }()
	Suspended = func() time.Duration { return suspended() + time.Hour }
	WallRan = func(t time.Time) time.Duration { return ran(t) + time.Hour }
	if asleep := Now().Sub(before); asleep < time.Hour {
		t.Errorf("the clock ran for %s during a suspend of an hour", asleep)
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
