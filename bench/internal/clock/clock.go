// Package clock reads the system's monotonic clock, which all processes of a machine share: the
// times of two processes can be compared. The monotonic part of a time.Time can not leave its
// process.
package clock

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Time is a reading of the clock, in nanoseconds since a moment that is the same for every process
// until the next boot.
type Time int64

// zero is one moment on both clocks. On Linux, time.Since measures on CLOCK_MONOTONIC too, so the
// two do not drift apart, and it costs a tenth of the system call.
var zero = meet()

type moment struct {
	local  time.Time
	shared Time
}

// meet reads both clocks a hundred times, and keeps the reading with the least time between them: the
// system may stop a process between two readings.
func meet() (best moment) {
	least := time.Duration(math.MaxInt64)
	for range 100 {
		before, local, after := read(), time.Now(), read()
		if between := after.Sub(before); between < least {
			best, least = moment{local, before.Add(between / 2)}, between
		}
	}
	return best
}

// Now reads the clock.
func Now() Time { return zero.shared + Time(time.Since(zero.local)) }

// Add returns the time d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns how much later t is than u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Until returns how long it is until t.
func (t Time) Until() time.Duration { return t.Sub(Now()) }

func read() Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("the monotonic clock cannot be read: " + err.Error()) // POSIX has no reason why it could not
	}
	return Time(ts.Nano())
}
