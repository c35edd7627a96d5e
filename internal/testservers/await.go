package testservers

import (
	"fmt"
	"time"
)

// settleTimeout bounds how long the servers of a Sentinel or Cluster may take to
// agree. It is far more than they take, and only a test that fails waits for it.
const settleTimeout = 30 * time.Second

// await polls until check returns nil. After settleTimeout it gives up, with what
// check complained of last.
func await(check func() error) error {
	deadline := time.NewTimer(settleTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("not within %v: %w", settleTimeout, err)
		case <-tick.C:
		}
	}
}
