package distlock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// A call that hangs keeps a connection of the driver.
func TestRenewals_hangingCall_endsAfterATTL(t *testing.T) {
	each(t, map[string]bool{"open": false, "closed": true}, func(t *testing.T, closes bool) {
		times := make(chan time.Duration, 100)
		l := open(t, &Script{OnExtend: func(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
			start := time.Now()
			<-ctx.Done()
			times <- time.Since(start)
			return Replies(reqs, driver.ExtendReply{Err: ctx.Err()})
		}}, Options{TTL: 30 * time.Second})
		lease := take(t, l)
		lease.grant.mu.Lock()
		lease.grant.trust.Extended(trust.Now(), 25*time.Hour)
		lease.grant.mu.Unlock()
		time.Sleep(16 * time.Second)
		want := 30 * time.Second
		if closes { // then it ends at once
			want = 6 * time.Second
			wantErr(t, l.Close(t.Context()), nil)
		}
		if took := <-times; took != want {
			t.Errorf("the call had %s, want %s", took, want)
		}
	})
}

// A lease near its deadline does not cut the time that the others of its batch have.
func TestRenewals_N_outage_keepsAnsweredLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, takes = 500, 150 * time.Millisecond
		start := time.Now()
		away, back := start.Add(30*time.Second), start.Add(53*time.Second)
		var mu sync.Mutex
		answered := make(map[string]time.Time) // when a key was first answered after the outage
		d := &Script{OnExtend: func(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
			switch now := time.Now(); {
			case now.Before(away):
				return Replies(reqs, driver.ExtendReply{Held: true})
			case now.Before(back):
				return Replies(reqs, driver.ExtendReply{Err: errors.New("connection refused")})
			}
			timer := time.NewTimer(takes)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return Replies(reqs, driver.ExtendReply{Err: ctx.Err()})
			}
			mu.Lock()
			defer mu.Unlock()
			for _, req := range reqs {
				if _, ok := answered[req.Name.Key]; !ok {
					answered[req.Name.Key] = time.Now()
				}
			}
			return Replies(reqs, driver.ExtendReply{Held: true})
		}}
		l := open(t, d, Options{TTL: 30 * time.Second})
		var leases []*Lease
		for i := range n {
			lease, err := l.Acquire(t.Context(), strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
			time.Sleep(10 * time.Second / n)
		}
		time.Sleep(time.Until(back))
		lasts := make(map[*Lease]time.Duration)
		for _, lease := range leases {
			lease.grant.mu.Lock()
			if lease.errLocked() == nil {
				lasts[lease] = lease.grant.trust.Left(trust.Now())
			}
			lease.grant.mu.Unlock()
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		lost := 0
		for lease, last := range lasts {
			at, ok := answered[lease.Key()]
			if lease.Err() != nil && (last > takes || ok && at.Before(back.Add(last))) {
				lost++
			}
		}
		if lost > 0 || len(lasts) < n/2 {
			t.Errorf("of %d leases that were held when the backend returned, %d were lost for no reason", len(lasts), lost)
		}
	})
}

// A notice may come while its lease is released.
func TestAsked_S1_releasedMeanwhile_noRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Script{OnRelease: func(context.Context, driver.ReleaseRequest) (driver.ReleaseReply, error) {
			time.Sleep(time.Second)
			return driver.ReleaseReply{Released: true}, nil
		}}
		l := open(t, d, Options{})
		lease := take(t, l)
		l.asked(func(driver.Name) bool { go give(t, lease); synctest.Wait(); return true })
		if lease.grant.renewalDue() {
			t.Error("a renewal is due after the release was sent")
		}
		time.Sleep(time.Second)
	})
}
