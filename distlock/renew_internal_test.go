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
		go give(t, lease)
		synctest.Wait()
		lease.grant.renewNow(true)
		if lease.grant.renewalDue() {
			t.Error("a renewal is due after the release was sent")
		}
		time.Sleep(time.Second)
	})
}

// A failover may lose an ask that was notified, perhaps twice. The work has ended, and the lease is renewed
// once.
func TestAsked_L_lostAsk_renewedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(Script)
		l := open(t, s, Options{})
		first := take(t, l)
		give(t, first)
		lease := take(t, l)
		l.asked(first.grant.owner) // late
		synctest.Wait()
		if lease.Context().Err() != nil || s.Extended() > 0 {
			t.Error("a late notice has ended the work of another grant")
		}
		l.asked(lease.grant.owner)
		l.asked(lease.grant.owner) // doubled
		if context.Cause(lease.Context()) != ErrInterrupted {
			t.Error("a notice ended no work")
		}
		time.Sleep(2 * l.opts.TTL)
		if lease.Err() == nil {
			t.Error("the lease lasts for more than a TTL")
		}
		if n := s.Extended(); n != 1 {
			t.Errorf("%d renewals of an asked lease", n)
		}
	})
}

// The context of the work ends a moment after the ask. A step that begins in this moment goes on. Another
// context counts.
func TestGuard_O_askedInThisMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(Script), Options{})
		for range 100 {
			_ = l.Do(t.Context(), "k", func(ctx context.Context) error {
				lease, _ := l.FromContext(ctx, "k")
				l.asked(lease.grant.owner)
				wantErr(t, lease.Guard(ctx, func(ctx context.Context) error { synctest.Wait(); return ctx.Err() }), nil)
				ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
				wantErr(t, lease.Guard(ctx, func(ctx context.Context) error { cancel(); <-ctx.Done(); return context.Cause(ctx) }), context.Canceled)
				return nil
			})
		}
	})
}

// A step in a step waits for nothing, also if an ask of a lease around them, or within, has ended its
// context.
func TestGuard_O_askOfAnotherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(Script), Options{})
		under := func(ctx context.Context, key string, fn func(context.Context, *Lease) error) error {
			return l.Do(ctx, key, func(ctx context.Context) error {
				lease, _ := l.FromContext(ctx, key)
				return fn(ctx, lease)
			})
		}
		step := func(ctx context.Context) error { return ctx.Err() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_ = under(ctx, "outer", func(ctx context.Context, outer *Lease) error {
			return under(ctx, "k", func(ctx context.Context, lease *Lease) error {
				wantErr(t, lease.Guard(ctx, func(ctx context.Context) error {
					l.asked(outer.grant.owner)
					<-ctx.Done()
					wantErr(t, lease.Guard(ctx, step), nil)
					_ = under(ctx, "inner", func(ctx context.Context, inner *Lease) error {
						l.asked(inner.grant.owner)
						<-ctx.Done()
						wantErr(t, lease.Guard(ctx, step), nil)
						return nil
					})
					return nil
				}), nil)
				return nil
			})
		})
	})
}
