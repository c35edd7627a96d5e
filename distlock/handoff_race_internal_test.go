package distlock

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// behind has a call of Acquire stand in the queue of the process, and returns where its lease will come.
func behind(t *testing.T, l *Locker) <-chan *Lease {
	t.Helper()
	leases := make(chan *Lease, 1)
	go func() {
		lease, err := l.Acquire(context.Background(), "k")
		if err != nil {
			t.Error(err)
		}
		leases <- lease
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Microsecond) { // a poll
		waiters := 0
		l.queues.Each("k", func(*acquisition) { waiters++ })
		if waiters == 1 {
			return leases
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not wait in the queue")
		}
	}
}

func TestRaiseToken_S2_answerAfterRelease_noEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &minter{hold: make(chan struct{})}
		l := open(t, d, unrenewed)
		lease := take(t, l)
		first := lease.Fence()
		raised := make(chan error)
		go func() { raised <- lease.raiseToken(t.Context(), first) }()
		synctest.Wait()
		give(t, lease)
		close(d.hold)
		if err := <-raised; !errors.Is(err, ErrNotHeld) {
			t.Errorf("RaiseToken: %v", err)
		}
		if lease.Fence() != first {
			t.Errorf("the released lease has the token %d, it had %d", lease.Fence(), first)
		}
	})
}

// A lease can be lost in the moment after its handoff. The queue knows it by then.
func TestHandoff_L_successorLostAtOnce_queueGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(minter), unrenewed)
		lease := take(t, l)
		next := behind(t, l)
		g := lease.grant
		time.Sleep(time.Millisecond)
		lost := make(chan error, 1)
		go func() {
			for {
				g.mu.Lock()
				seen := g.holder
				g.mu.Unlock()
				if seen != lease {
					lost <- lose(seen)
					return
				}
				runtime.Gosched() // to meet the handoff
			}
		}()
		give(t, lease)
		if err := <-lost; !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		if second := <-next; second != g.holder || !errors.Is(second.Err(), ErrLost) {
			t.Errorf("the waiter was handed %p, not %p", second, g.holder)
		}
		again, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatalf("the queue is stuck: %v", err)
		}
		give(t, again)
	})
}

// The timer fires for the deadline of the first lease, and finds the second.
func TestHandoff_N_duringALook_deadlineStillEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(minter), unrenewed)
		lease := take(t, l)
		end := lease.grant.trust.Deadline()
		next := behind(t, l)
		time.Sleep(time.Millisecond)
		give(t, lease)
		lease.grant.timer.Stop() // it has fired
		lease.grant.onTimer()
		second := <-next
		if second.Fence() != lease.Fence()+1 {
			t.Fatalf("there was no handoff: token %d after %d", second.Fence(), lease.Fence())
		}
		select {
		case <-second.Context().Done():
		case <-time.After(time.Hour):
		}
		if late := trust.Until(end); late != 0 || context.Cause(second.Context()) != ErrLost {
			t.Errorf("%v, %s before the deadline", context.Cause(second.Context()), late)
		}
	})
}
