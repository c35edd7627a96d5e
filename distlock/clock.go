package distlock

import (
	"sync/atomic"
	"time"
)

// moment is a reading of the clock that trust rests on. It runs while the machine is suspended, as the lock service's
// does, takes no notice of steps of the wall clock, and never goes back. Only differences of moments mean anything.
type moment struct {
	at time.Duration
	// ahead is by how much the wall clock has run ahead of at, on systems that do not tell how long they were suspended:
	// what was trusted at another reading is then open to doubt. Elsewhere it is always 0.
	ahead time.Duration
}

var epoch = time.Now()

// now reads the clock: Go's monotonic one, which stands still during suspend on Linux, plus the time spent suspended.
func now() moment { return momentOf(time.Now()) }

// momentOf is now, at a moment for which Go's clock has just been read.
func momentOf(t time.Time) moment {
	slept.look(wallRan(t))
	return moment{at: t.Sub(epoch) + time.Duration(slept.longest.Load()), ahead: wallAhead()}
}

// wallRan is by how much the wall clock has run ahead of the monotonic one.
var wallRan = func(t time.Time) time.Duration { return t.Round(0).Sub(epoch.Round(0)) - t.Sub(epoch) }

// wallRanAhead is what wallAhead is where the time spent suspended cannot be read.
func wallRanAhead() time.Duration { return wallRan(time.Now()) }

func (m moment) add(d time.Duration) moment {
	m.at += d
	return m
}
func (m moment) sub(earlier moment) time.Duration { return m.at - earlier.at }
func (m moment) before(other moment) bool         { return m.at < other.at }

// until is the time from now to m; not positive if m has come.
func until(m moment) time.Duration { return m.sub(now()) }

// sleeping is the longest time that the machine was seen to have been suspended. A reading can be too low, when the
// thread is paused in the middle of it, but never too high; so the highest is the best, and the clock never runs ahead:
// a deadline that counts from a reading is not too late.
type sleeping struct {
	longest atomic.Int64
	wall    atomic.Int64 // wallRan at the last reading
}

var slept sleeping

// What was spent suspended before the process started is no news to it.
func init() { slept.observe(suspended()) }

// pace is by how much the wall clock may go its own way before the time spent suspended is read.
const pace = time.Millisecond

// look reads the time spent suspended when the wall clock has not kept pace with the monotonic one since the last reading, which
// costs less to see than that reading: waking up, Linux adds the time to the wall clock in the same step as to CLOCK_BOOTTIME.
// Steps and corrections of the wall clock make it read for nothing.
func (s *sleeping) look(wall time.Duration) {
	if off := int64(wall) - s.wall.Load(); -int64(pace) < off && off < int64(pace) {
		return
	}
	s.observe(suspended())
	s.wall.Store(int64(wall)) // not sooner: until the time is known, everybody has to look
}

func (s *sleeping) observe(seen time.Duration) time.Duration {
	// In whole milliseconds, so that the noise of a reading does not move the clock.
	rounded := int64(seen.Truncate(time.Millisecond))
	for {
		longest := s.longest.Load()
		if rounded <= longest {
			return time.Duration(longest)
		}
		if s.longest.CompareAndSwap(longest, rounded) {
			return time.Duration(rounded)
		}
	}
}
