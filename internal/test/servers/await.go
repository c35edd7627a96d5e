package servers

import (
	"fmt"
	"testing"
	"time"
)

// settleTimeout bounds how long the servers of a Sentinel or Cluster may take to agree. It is far
// more than they take, and only a test that fails waits for it.
const settleTimeout = 30 * time.Second

// Within polls until done reports true, and reports whether that was within the limit. It polls
// each millisecond at first, and less often the longer it has waited, at least each 20 ms.
func Within(limit time.Duration, done func() bool) bool {
	for start := time.Now(); !done(); {
		waited := time.Since(start)
		if waited > limit {
			return false
		}
		time.Sleep(min(max(waited/50, time.Millisecond), 20*time.Millisecond))
	}
	return true
}

// Await is Within for what has to happen: if it does not, the test fails and names it.
func Await(tb testing.TB, limit time.Duration, what string, done func() bool) {
	tb.Helper()
	if !Within(limit, done) {
		tb.Fatalf("not within %s: %s", limit, what)
	}
}

// awaited is await for what check finds. If check finds nothing, the test fails.
func awaited(tb testing.TB, what string, check func() (*Redis, error)) (found *Redis) {
	tb.Helper()
	if err := await(func() (err error) { found, err = check(); return err }); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
	return found
}

// await polls until check returns nil. After settleTimeout it gives up, with what check complained
// of last.
func await(check func() error) (err error) {
	if !Within(settleTimeout, func() bool { err = check(); return err == nil }) {
		return fmt.Errorf("not within %v: %w", settleTimeout, err)
	}
	return nil
}
