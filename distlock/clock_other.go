//go:build !linux

package distlock

import "time"

// suspended is not known here.
var suspended = func() time.Duration { return 0 }

// wallAhead tells of a suspend, or of a step of the wall clock: nothing here tells them apart.
var wallAhead = wallRanAhead
