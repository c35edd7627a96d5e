package history

import "golang.org/x/sys/unix"

// Now reads CLOCK_MONOTONIC, in nanoseconds. All processes of a machine share this clock, so their times can
// be compared.
//
// It makes a system call each time. The runtime's clock would be cheaper, but must be aligned once by two
// readings. A process that is stopped between them would have wrong times.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("the monotonic clock cannot be read: " + err.Error()) // POSIX has no reason why it could not
	}
	return ts.Nano()
}
