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
func now() moment {
	return moment{at: time.Since(epoch) + slept.observe(suspended()), ahead: wallAhead()}
}

// wallRanAhead is what wallAhead is where the time spent suspended cannot be read.
func wallRanAhead() time.Duration {
	wall := time.Now()
	return wall.Round(0).Sub(epoch.Round(0)) - wall.Sub(epoch)
}

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
type sleeping struct{ longest atomic.Int64 }

var slept sleeping

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
