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

// counted counts the requests of Extend.
type counted struct {
	driver.Driver
	most  atomic.Int64
	total atomic.Int64
}

func (n *counted) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	n.most.Store(max(n.most.Load(), int64(len(reqs))))
	n.total.Add(int64(len(reqs)))
	return n.Driver.Extend(ctx, reqs)
}

func TestRenew_batchesKeepTheDriversLimit(t *testing.T) {
	const leases = driver.MaxBatch + 500
	inService(t, func(t *testing.T, s *service) {
		d := &counted{Driver: s.spy}
		l := open(t, d, distlock.Options{TTL: ttl})
		for i := range leases {
			lease, err := l.Acquire(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			defer mustRelease(t, lease)
		}
		time.Sleep(2 * ttl)
		if most, total := d.most.Load(), d.total.Load(); most > driver.MaxBatch || most < 2 || total < leases {
			t.Errorf("the largest of %d renewals in batches has %d, want at most %d", total, most, driver.MaxBatch)
		}
	})
}
