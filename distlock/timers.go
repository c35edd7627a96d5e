package distlock

import "time"

// atLeastOneTick returns d, at least 1 ns. Use it for every timer whose duration is computed.
//
// In a bubble of testing/synctest, Go runs a timer at once that is due when it is set, or when its
// channel is received from. Two such timers at the same time crash the race detector
// (golang.org/issue/78156, in Go 1.26), and with it the tests of every user of memlock in a bubble. A
// timer that is not due is left to the bubble, which runs one after the other. For the same reason a
// timer's channel is only received from straight after the timer was set.
//
// When no supported release of Go has this bug, d is enough.
func atLeastOneTick(d time.Duration) time.Duration { return max(d, 1) }
