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

// Suspended is the time that the machine has spent suspended since its start: CLOCK_BOOTTIME less
// CLOCK_MONOTONIC. It is too low if the thread pauses between the two readings, and never below 0: a kernel
// without CLOCK_BOOTTIME reads 0.
var Suspended = func() time.Duration {
	boot := readClock(clockBoottime)
	return max(0, boot-readClock(clockMonotonic))
}

func readClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
