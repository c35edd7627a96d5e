package distlock

import "time"

// positive is how long a timer is set for that is to fire after d: every timer of which that is not a constant.
//
// In a bubble of testing/synctest, Go runs a timer that is due when it is set, or when its channel is received from, then and
// there. Two that run so at the same time crash the race detector (golang.org/issue/78156, in Go 1.26), and with it the tests
// of whoever uses memlock in a bubble. A timer that is not due is left to the bubble, which runs one after the other. For the
// same reason a timer's channel is only received from straight after the timer was set: no time can pass unseen then.
//
// A lock loses nothing by a nanosecond. When no supported release of Go has this bug, d will do.
func positive(d time.Duration) time.Duration { return max(d, 1) }
