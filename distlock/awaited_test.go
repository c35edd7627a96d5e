package distlock_test

import (
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// wantAwaited checks the tokens that the leases of a queue have awaited.
func (q *queue) wantAwaited(want map[string]int64) {
	q.t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, token := range want {
		if lease := q.leases[name]; lease == nil || fencing.Awaited(lease) != token {
			q.t.Errorf("%s, with the lease %v, has not awaited %d", name, lease, token)
		}
	}
}

func mustRaise(t *testing.T, lease *distlock.Lease) (raised int64) {
	t.Helper()
	must(t, fencing.RaiseToken(t.Context(), lease, lease.Fence()))
	return lease.Fence()
}

// A waiter keeps the token of the first answer, through whatever the holder does. A raise of its own token
// takes it away.
func TestAwaited_S2_tokenOfFirstAnswer(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		holder, q := mustAcquire(t, s.locker(t)), newQueue(t)
		first := holder.Fence()
		q.join(s.locker(t), "before", time.Second)
		raised := mustRaise(t, holder)
		q.join(s.locker(t), "after", 0)
		time.Sleep(2 * ttl) // the waiters ask again
		if token := fencing.Awaited(holder); token != 0 {
			t.Errorf("a lease that was granted at once has awaited %d", token)
		}
		mustRelease(t, holder)
		q.wg.Wait()
		q.wantAwaited(map[string]int64{"before": first, "after": raised})
		mustRaise(t, q.leases["after"])
		q.wantAwaited(map[string]int64{"after": 0})
	})
}

// Of the waiters of a process, one asks. Its answers count for those that were there when it asked.
func TestAwaited_S2_answersCountInProcess(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		theirs, q := s.twin(), newQueue(t)
		holder, l := mustAcquire(t, s.locker(t)), theirs.locker(t)
		first := holder.Fence()
		theirs.Inject(nth(drivertest.Acquire, 0, drivertest.Fault{HoldAfter: in(100 * time.Millisecond)}))
		q.join(l, "contender", time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		q.join(l, "second", time.Millisecond) // the answer under way is older
		raised := mustRaise(t, holder)
		time.Sleep(100 * time.Millisecond)
		again := mustRaise(t, holder)
		q.join(l, "third", time.Millisecond)
		time.Sleep(2 * ttl)
		mustRaise(t, holder)
		mustRelease(t, holder)
		q.wg.Wait()
		q.wantAwaited(map[string]int64{"contender": first, "second": raised, "third": again})
	})
}

// The raise of a lease shows a token below the new one to all waiters of the process, and the new one to
// later waiters. ⚑ With the old token, waiters from after a Stop would end.
func TestAwaited_S2_raiseCountsInProcess(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, q := s.locker(t), newQueue(t)
		holder := mustAcquire(t, l)
		for _, name := range []string{"a", "b", "c"} {
			q.join(l, name, 0)
		}
		time.Sleep(time.Millisecond)
		raised := mustRaise(t, holder)
		time.Sleep(time.Millisecond)
		q.join(l, "later", 0)
		mustRelease(t, holder) // after a raise, the first waiter asks; the others have handoffs within the process
		for _, name := range []string{"a", "b", "c"} {
			time.Sleep(time.Millisecond)
			q.wantAwaited(map[string]int64{name: raised - 1})
			mustRelease(t, q.leases[name])
		}
		q.wg.Wait()
		if token := fencing.Awaited(q.leases["later"]); token != 0 && token < raised {
			t.Errorf("a later waiter has awaited %d", token)
		}
		s.wantCalls(t, drivertest.Acquire, 2) // the others were handed the lock within the process
	})
}

// A raise counts for the contender, too, although its own request comes after the raise.
func TestAwaited_S2_raiseCountsForContender(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		theirs, q := s.twin(), newQueue(t)
		l := theirs.locker(t)
		holder := mustAcquire(t, l)
		time.Sleep(100 * time.Millisecond) // no handoff is possible, so a waiter asks
		theirs.Inject(nth(drivertest.Acquire, 1, drivertest.Fault{HoldBefore: in(100 * time.Millisecond)}))
		q.join(l, "contender", 50*time.Millisecond)
		raised := mustRaise(t, holder)
		time.Sleep(100 * time.Millisecond)
		mustRelease(t, holder)
		q.wg.Wait()
		q.wantAwaited(map[string]int64{"contender": raised - 1})
	})
}
