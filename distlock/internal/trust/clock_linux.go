package trust

import (
	"syscall"
	"time"
	"unsafe"
)

// The clock IDs of <linux/time.h>.
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// suspended is the time that the machine has spent suspended since its start: CLOCK_BOOTTIME less
// CLOCK_MONOTONIC. It is too low if the thread pauses between the two readings.
var suspended = func() time.Duration {
	boot, ok := readClock(clockBoottime)
	if !ok {
		return 0
	}
	monotonic, ok := readClock(clockMonotonic)
	if !ok {
		return 0
	}
	return boot - monotonic
}

func readClock(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, failure := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), failure == 0
}
