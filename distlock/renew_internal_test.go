package distlock

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// stuck does not answer renewals before their context ends.
type stuck struct {
	*minter
	took chan time.Duration
}

func (s stuck) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	start := time.Now()
	<-ctx.Done()
	s.took <- time.Since(start)
	replies := make([]driver.ExtendReply, len(reqs))
	for i := range replies {
		replies[i].Err = ctx.Err()
	}
	return replies
}

// A call that hangs keeps a connection of the driver.
func TestRenewals_hangingCall_endsAfterATTL(t *testing.T) {
	for name, closes := range map[string]bool{"open": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stuck{minter: new(minter), took: make(chan time.Duration, 100)}
				l := open(t, s, Options{TTL: 30 * time.Second})
				lease := take(t, l)
				lease.grant.mu.Lock()
				lease.grant.trust.Extended(trust.Now(), 25*time.Hour)
				lease.grant.mu.Unlock()
				time.Sleep(16 * time.Second)
				want := 30 * time.Second
				if closes { // then it ends at once
					want = 6 * time.Second
					if err := l.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if took := <-s.took; took != want {
					t.Errorf("the call had %s, want %s", took, want)
				}
			})
		})
	}
}

// returning refuses renewals until a moment, and then takes a while to answer. It honours contexts.
type returning struct {
	minter
	away, back time.Time
	takes      time.Duration
	answered   map[string]time.Time // when it first answered after its return
}

func (r *returning) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := r.minter.Extend(ctx, reqs)
	fail := func(err error) []driver.ExtendReply {
		for i := range replies {
			replies[i] = driver.ExtendReply{Err: err}
		}
		return replies
	}
	switch now := time.Now(); {
	case now.Before(r.away):
		return replies
	case now.Before(r.back):
		return fail(errors.New("connection refused"))
	}
	timer := time.NewTimer(r.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range reqs {
		if _, ok := r.answered[req.Name.Key]; !ok {
			r.answered[req.Name.Key] = time.Now()
		}
	}
	return replies
}

// A lease near its deadline does not cut the time that the others of its batch have.
func TestRenewals_N_outage_keepsAnsweredLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3_000
		start := time.Now()
		d := &returning{away: start.Add(30 * time.Second), back: start.Add(53 * time.Second),
			takes: 100 * time.Millisecond, answered: make(map[string]time.Time)}
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
		time.Sleep(time.Until(d.back))
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
			if lease.Err() == nil {
				continue
			}
			if at, ok := d.answered[lease.Key()]; last > d.takes || ok && at.Before(d.back.Add(last)) {
				lost++
			}
		}
		if lost > 0 || len(lasts) < n/2 {
			t.Errorf("of %d leases that were held when the backend returned, %d were lost for no reason",
				len(lasts), lost)
		}
	})
}
