package trust

import (
	"testing"
	"testing/synctest"
	"time"
)

// beforeStart is how long the machine was suspended before the process started, for all tests.
const beforeStart = time.Hour

// Variables are set before init runs.
var _ = func() bool {
	real := Suspended
	Suspended = func() time.Duration { return beforeStart + real() }
	return true
}()

// sleptAtStart is the first value of the clock. This init runs after the init of clock.go.
var sleptAtStart time.Duration

func init() { sleptAtStart = time.Duration(slept.longest.Load()) }

// Otherwise the clock would jump at the first correction of the wall clock, and all leases would be lost.
func TestClock_N_suspendBeforeStartDoesNotCount(t *testing.T) {
	if sleptAtStart < beforeStart-time.Second { // a reading is not exact
		t.Errorf("the clock began with %s, of %s that the machine had been suspended for", sleptAtStart, beforeStart)
	}
}

func TestClock_N_slowReading_readsAgain(t *testing.T) { synctest.Test(t, slowReading) }

func slowReading(t *testing.T) {
	real := Suspended
	defer func() { Suspended = real }()
	var s sleeping
	Suspended = func() time.Duration { time.Sleep(2 * pace); return time.Minute }
	s.readIfWallMoved(time.Hour)
	Suspended = func() time.Duration { return time.Hour }
	if s.readIfWallMoved(time.Hour); time.Duration(s.longest.Load()) != time.Hour {
		t.Errorf("suspended for %s, by a reading during which the thread paused", time.Duration(s.longest.Load()))
	}
}

func TestClock_N_readsAgainWhenWallClockLeavesPace(t *testing.T) { synctest.Test(t, readsAgain) }

func readsAgain(t *testing.T) {
	real := Suspended
	defer func() { Suspended = real }()
	var s sleeping
	reads, asleep := 0, time.Duration(0)
	Suspended = func() time.Duration { reads++; return asleep }
	for i, c := range []struct {
		wall  time.Duration // has run ahead of the monotonic clock by so much, since the start
		reads bool
	}{
		{0, false},
		{pace - 1, false},
		{1 - pace, false},
		{pace, true},
		{pace, false},
		{2*pace - 1, false},
		{1, false}, // near the last reading, which was at pace
		{0, true},
		{-pace, true}, // stepped back
		{-2*pace + 1, false},
		{-time.Hour, true},
		{-time.Hour + pace - 1, false},
		{time.Hour, true},
		{time.Hour, false},
	} {
		before := reads
		asleep += time.Minute
		if s.readIfWallMoved(c.wall); reads > before != c.reads || reads > before+1 {
			t.Errorf("step %d, wall clock %s ahead: read %d times, want %t", i, c.wall, reads-before, c.reads)
		}
		if got := time.Duration(s.longest.Load()); c.reads && got != asleep {
			t.Errorf("step %d: suspended for %s, want %s", i, got, asleep)
		}
	}
}
