package distlock

import (
	"context"
	"strconv"
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

// Leases that are renewed together have the same deadline; one timer looks at them all, once in a TTL.
func TestExpiries_lookOnceInATTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, renewer{}, Options{})
		var leases []*Lease
		for i := range 100 {
			lease, err := l.Acquire(t.Context(), strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		looks := 0
		last := time.Duration(0)
		for range 10 * 60 { // ten TTLs, of half a second each
			time.Sleep(500 * time.Millisecond)
			l.expiries.mu.Lock()
			if at := l.expiries.at.at; at != last {
				looks, last = looks+1, at
			}
			l.expiries.mu.Unlock()
		}
		if looks > 20 {
			t.Errorf("the timer was set %d times in ten TTLs", looks)
		}
		for _, lease := range leases {
			if err := lease.Err(); err != nil {
				t.Fatal(err)
			}
			l.renewals.remove(lease)
		}
		time.Sleep(leases[0].ttl)
		for _, lease := range leases {
			if lease.ctx.Err() == nil {
				t.Fatal("not lost when renewal had ended")
			}
		}
	})
}

// An Extend that shortens a lease moves its end in front of others.
func TestExpiries_N_aShortenedLeaseEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, renewer{}, Options{RenewEvery: -1})
		first, _ := l.Acquire(t.Context(), "first")
		second, _ := l.Acquire(t.Context(), "second")
		if err := second.Extend(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-second.Context().Done()
		if took, want := time.Since(start), time.Second-drift(time.Second)-margin(time.Second); took != want {
			t.Errorf("told after %s, want %s", took, want)
		}
		if err := first.Err(); err != nil {
			t.Error(err)
		}
		<-first.Context().Done()
		if took, want := time.Since(start), first.ttl-drift(first.ttl)-margin(first.ttl); took != want {
			t.Errorf("the other was told after %s, want %s", took, want)
		}
	})
}
