package trust

import (
	"sync/atomic"
	"time"
)

// Moment is a reading of the clock. The clock runs while the machine is suspended, as the clock of
// the backend does. It ignores steps of the wall clock and never goes back. Only differences of
// moments have a meaning. On systems other than Linux it may stand still while the machine is suspended.
type Moment struct{ at time.Duration }

var origin = time.Now()

// Now reads the clock: Go's monotonic clock, which stands still during suspend on Linux, plus the
// time spent suspended.
func Now() Moment { return At(time.Now()) }

// At is Now for a time that was just read from Go's clock.
func At(t time.Time) Moment {
	slept.readIfWallMoved(WallRan(t))
	return Moment{at: t.Sub(origin) + time.Duration(slept.longest.Load())}
}

// WallRan is by how much the wall clock has run ahead of the monotonic clock. It is a variable for tests, as
// Suspended is.
var WallRan = func(t time.Time) time.Duration { return t.Round(0).Sub(origin.Round(0)) - t.Sub(origin) }

// Add returns the moment d after m.
func (m Moment) Add(d time.Duration) Moment {
	m.at += d
	return m
}

// Sub returns the time from earlier to m.
func (m Moment) Sub(earlier Moment) time.Duration { return m.at - earlier.at }

// Before reports whether m comes before other.
func (m Moment) Before(other Moment) bool { return m.at < other.at }

// Until returns the time from now to m. It is not positive if m has come.
func Until(m Moment) time.Duration { return m.Sub(Now()) }

// sleeping is the longest known time that the machine was suspended. A reading can be too low,
// because the thread may pause in the middle. It is never too high. The highest reading is the best,
// and the clock never runs ahead: a deadline that counts from a reading is not too late.
type sleeping struct {
	longest atomic.Int64
	wall    atomic.Int64 // WallRan at the last reading
}

var slept sleeping

// A suspend before the start of the process does not count.
func init() { slept.observe(Suspended()) }

// pace is how far the wall clock may drift before the time spent suspended is read.
const pace = time.Millisecond

// readIfWallMoved reads the time spent suspended if the wall clock has left the pace of the monotonic clock
// since the last reading. The comparison costs less than a reading. After a suspend, Linux moves the
// wall clock and CLOCK_BOOTTIME in the same step. A step of the wall clock alone costs one reading.
func (s *sleeping) readIfWallMoved(wall time.Duration) {
	if off := int64(wall) - s.wall.Load(); -int64(pace) < off && off < int64(pace) {
		return
	}
	start := time.Now()
	s.observe(Suspended())
	if time.Since(start) < pace { // else the thread may have paused, and the reading be too low
		s.wall.Store(int64(wall)) // not sooner: until the time is known, every caller has to look
	}
}

func (s *sleeping) observe(seen time.Duration) {
	// In whole milliseconds, so that the noise of a reading does not move the clock.
	rounded := int64(seen.Truncate(time.Millisecond))
	for longest := s.longest.Load(); longest < rounded; longest = s.longest.Load() {
		if s.longest.CompareAndSwap(longest, rounded) {
			return
		}
	}
}
