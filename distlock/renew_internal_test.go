package distlock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// renewer grants and extends everything.
type renewer struct{ granter }

func (renewer) Extend(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	for i := range replies {
		replies[i].Held = true
	}
	return replies
}

// A timer that runs out starts a goroutine, and leases that are renewed together have the same deadline.
func TestLease_timerOfARenewedLeaseDoesNotRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(renewer{}, &Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(t.Context())
		lease, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		var ran atomic.Int32
		lease.mu.Lock()
		lease.expiry.Stop()
		lease.expiry.Timer = time.AfterFunc(until(lease.deadline), func() {
			ran.Add(1)
			lease.expire()
		})
		lease.mu.Unlock()
		time.Sleep(10 * lease.ttl)
		if err := lease.Err(); err != nil || ran.Load() > 0 {
			t.Errorf("ran out %d times; %v", ran.Load(), err)
		}
		l.renewals.remove(lease)
		time.Sleep(lease.ttl)
		if ran.Load() != 1 || lease.ctx.Err() == nil {
			t.Errorf("ran out %d times when renewal had ended; %v", ran.Load(), lease.ctx.Err())
		}
	})
}
