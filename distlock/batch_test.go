package distlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// narrow is a driver that takes three requests in one Extend.
type narrow struct {
	driver.Driver
	most  atomic.Int64
	total atomic.Int64
}

func (n *narrow) Capabilities() driver.Capabilities {
	c := n.Driver.Capabilities()
	c.MaxBatch = 3
	return c
}

func (n *narrow) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	n.most.Store(max(n.most.Load(), int64(len(reqs))))
	n.total.Add(int64(len(reqs)))
	return n.Driver.Extend(ctx, reqs)
}

func TestRenew_batchesKeepTheDriversLimit(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		d := &narrow{Driver: s.spy}
		l := open(t, d, distlock.Options{TTL: ttl})
		for i := range 10 {
			lease, err := l.Acquire(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			defer mustRelease(t, lease)
		}
		time.Sleep(2 * ttl)
		if most, total := d.most.Load(), d.total.Load(); most != 3 || total < 40 {
			t.Errorf("the largest of %d renewals in batches has %d, want batches of 3", total, most)
		}
	})
}
