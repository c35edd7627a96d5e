package distlock_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// exchanges are the times at which batches of renewals were sent.
type exchanges struct {
	mu    sync.Mutex
	times []time.Time
}

// note returns how many there were before.
func (e *exchanges) note() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.times = append(e.times, time.Now())
	return len(e.times) - 1
}

func (e *exchanges) all() []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.times
}

// acquireTogether makes n leases that are due in the same moment.
func acquireTogether(t *testing.T, l *distlock.Locker, n int) []*distlock.Lease {
	t.Helper()
	leases := make([]*distlock.Lease, n)
	for i := range leases {
		var err error
		if leases[i], err = l.Acquire(t.Context(), key+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	return leases
}

func wantHeld(t *testing.T, leases []*distlock.Lease) {
	t.Helper()
	for i, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Fatalf("lease %d of %d: %v", i, len(leases), err)
		}
	}
}

func TestRenewals_dueTogetherGoOutInBatches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		leases := acquireTogether(t, s.locker(t, distlock.Options{}), 3_500)
		var sent exchanges
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op != drivertest.Extend {
				return drivertest.Fault{}
			}
			sent.note()
			return drivertest.Fault{HoldAfter: in(10 * time.Millisecond)}
		})
		time.Sleep(4*ttl/3 + ttl/6)
		if n := len(sent.all()); n != 4*4 {
			t.Errorf("%d exchanges for 4 renewals of 3,500 leases, want 16", n)
		}
		s.Inject(nil)
		wantHeld(t, leases)
	})
}

func TestRenewals_thatAreStuckDoNotHoldUpOthers(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		never := make(chan struct{})
		defer close(never)
		start := time.Now()
		leases := acquireTogether(t, s.locker(t, distlock.Options{}), 4_500)
		var sent exchanges
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend && sent.note() < 3 {
				return drivertest.Fault{HoldBefore: never}
			}
			return drivertest.Fault{}
		})
		time.Sleep(ttl/3 + 200*time.Millisecond)
		times := sent.all()
		if len(times) != 5 {
			t.Fatalf("%d of 5 exchanges were sent while 3 were stuck", len(times))
		}
		if late := times[4].Sub(start) - ttl/3; late > 100*time.Millisecond {
			t.Errorf("the last was late by %s", late)
		}
		time.Sleep(2 * ttl)
		wantHeld(t, leases)
	})
}

// A renewal that fails while its lease is released was neither done, nor is it tried again.
func TestRenewals_failedAfterRelease_notReported(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		l := s.locker(t, distlock.Options{Observer: seen})
		lease := mustAcquire(t, l)
		s.Inject(on(drivertest.Extend, drivertest.Fault{HoldBefore: in(ttl/3 + 100*time.Millisecond), Before: errSilence}))
		time.Sleep(ttl/3 + 50*time.Millisecond)
		mustRelease(t, lease)
		mustClose(t, l)
		want := []string{"distlock.acquire acquired", "distlock.release done"}
		if got := seen.outcomes(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A lease with its own, short TTL is renewed in time beside a long one, also in one batch with it.
func TestRenewals_shortLeasesAreRenewedBesideLongOnes(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{TTL: 30 * time.Second})
		start := time.Now()
		if _, err := l.Acquire(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
		hold := func() {
			t.Helper()
			short, err := l.Acquire(t.Context(), key, distlock.WithTTL(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			if err := short.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		hold()
		// Due just after the other one: a batch that hangs is given up in time for the lease that
		// needs it first.
		time.Sleep(time.Until(start.Add(10*time.Second + 20*time.Millisecond - time.Second/3)))
		never := make(chan struct{})
		defer close(never)
		first := s.Calls(drivertest.Extend)
		s.Inject(nth(drivertest.Extend, first, drivertest.Fault{HoldBefore: never}))
		hold()
	})
}
