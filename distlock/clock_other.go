//go:build !linux

package distlock

import "time"

// suspended is not known here; docs/semantics.md says what that means.
var suspended = func() time.Duration { return 0 }
