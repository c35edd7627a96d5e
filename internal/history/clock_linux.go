package history

import "golang.org/x/sys/unix"

// Now reads CLOCK_MONOTONIC, in nanoseconds: all processes of a machine share it, so what two of them have noted can be compared.
//
// It makes a system call each time. The runtime's clock would be cheaper, but has to be aligned once, by two readings between which the
// process may be stopped: all its times would be wrong by that, and right histories blamed.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("the monotonic clock cannot be read: " + err.Error()) // POSIX has no reason why it could not
	}
	return ts.Nano()
}
