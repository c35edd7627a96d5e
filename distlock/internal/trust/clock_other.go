//go:build !linux

package trust

import "time"

// suspended is not known here.
var suspended = func() time.Duration { return 0 }

// wallAhead grows with a suspend and with a step of the wall clock. Nothing here separates them.
var wallAhead = wallRanAhead
