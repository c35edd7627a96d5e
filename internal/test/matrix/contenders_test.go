package matrix

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// contenders compete for a lock. They hold it one at a time, with rising tokens.
type contenders struct {
	t       *testing.T
	lockers []*distlock.Locker // of one worker each
	stop    context.CancelFunc
	workers sync.WaitGroup
	turns   atomic.Int64
}

// newContenders connects, so that a fault begins later.
func newContenders(t *testing.T, s *service, n int) *contenders {
	c := &contenders{t: t}
	for range n {
		c.lockers = append(c.lockers, s.locker(t, withTTL(10*time.Second), forever))
	}
	return c
}

// begin lets them compete until end. They see no other errors than these.
func (c *contenders) begin(key string, allowed ...error) {
	ctx, stop := context.WithCancel(c.t.Context())
	c.stop = stop
	var inside atomic.Int64
	var last int64 // written by the holder
	check := func(what string, err error) (ok bool) {
		if err != nil && !slices.ContainsFunc(allowed, func(other error) bool { return errors.Is(err, other) }) {
			c.t.Errorf("%s: %v", what, err)
		}
		return err == nil
	}
	for _, l := range c.lockers {
		c.workers.Go(func() {
			for ctx.Err() == nil && !c.t.Failed() {
				lease, err := l.Acquire(c.t.Context(), key)
				if !check("Acquire", err) {
					continue
				}
				if n := inside.Add(1); n != 1 || lease.Fence() <= last {
					c.t.Errorf("%d holders; fence %d after %d", n, lease.Fence(), last)
				}
				last = lease.Fence()
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				c.turns.Add(1)
				check("Release", lease.Release(c.t.Context()))
			}
		})
	}
}

// end ends the competition, which has had some turns.
func (c *contenders) end() {
	c.t.Helper()
	c.stop()
	c.workers.Wait()
	if n := c.turns.Load(); n < 20 {
		c.t.Errorf("%d turns are too few to show anything", n)
	}
}
