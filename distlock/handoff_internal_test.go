package distlock

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

func TestHandoff_conditions(t *testing.T) {
	const ttl = 30 * time.Second
	at, age := time.Now(), time.Duration(0)
	early, waiter := trust.At(at), (*acquisition)(nil)
	closed, closeLocker := context.WithCancel(t.Context())
	closeLocker()
	for name, c := range map[string]struct {
		change func(*grant)
		want   bool
	}{
		"an asked lease":       {func(g *grant) { g.holder.asked = true }, false},
		"a Turn from before":   {func(*grant) { waiter.settings.Turn = true }, true},
		"a late Turn":          {func(g *grant) { waiter.settings.Turn, g.sent = true, early }, false},
		"a late write":         {func(g *grant) { g.sent = early }, true},
		"to an Answer":         {func(*grant) { waiter.settings.Work = "work" }, false},
		"of an Answer":         {func(g *grant) { g.holder.metadata = map[string]string{driver.WorkKey: "work"} }, false},
		"all met":              {func(*grant) {}, true},
		"a quarter left":       {func(g *grant) { g.trust = trust.Granted(trust.At(at.Add(-ttl*3/4)), ttl) }, false},
		"a closed Locker":      {func(g *grant) { g.locker.closing = closed }, false},
		"a change":             {func(g *grant) { g.changed = ttl }, false},
		"a last write":         {func(g *grant) { g.holder.lastWrite = lastWriteSent }, false},
		"another TTL":          {func(g *grant) { g.ttl = ttl - 1 }, false},
		"the last token":       {func(g *grant) { g.holder.fence.Store(g.lastToken - 1) }, true},
		"above the last token": {func(g *grant) { g.holder.fence.Store(g.lastToken) }, false},
		"a token for each µs":  {func(*grant) { age = 3 * time.Microsecond }, true},
		"more tokens than µs":  {func(*grant) { age = 3*time.Microsecond - 1 }, false},
	} {
		g := &grant{locker: &Locker{opts: Options{TTL: ttl}, closing: t.Context()}, ttl: ttl,
			firstToken: 1000, lastToken: 1010, trust: trust.Granted(trust.At(at), ttl)}
		g.holder = &Lease{grant: g}
		g.holder.fence.Store(1002)
		age = 5 * time.Millisecond
		g.sent = early.Add(time.Millisecond)
		waiter = &acquisition{began: g.sent, op: Operation{TTL: ttl}}
		c.change(g)
		if got := g.mayHandOffLocked(at, age, waiter); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

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
	synctest.Wait()
	time.Sleep(time.Millisecond) // tokens come with time
	return leases
}

// handedOff makes a lease and its successor in a local handoff.
func handedOff(t *testing.T, l *Locker) (first, second *Lease) {
	t.Helper()
	first = take(t, l)
	next := behind(t, l)
	give(t, first)
	second = <-next
	if second.grant != first.grant || second.Fence() != first.Fence()+1 {
		t.Fatalf("no handoff: token %d after %d", second.Fence(), first.Fence())
	}
	return first, second
}

// A lease and its successor have one grant in the backend.
func TestLease_N_formerHolderLeavesTheGrantAlone(t *testing.T) {
	each(t, map[string]func(*testing.T, *Lease) error{
		"Extend":     func(t *testing.T, le *Lease) error { return le.Extend(t.Context(), time.Second) },
		"raiseToken": func(t *testing.T, le *Lease) error { return le.raiseToken(t.Context(), le.Fence()+5) },
		"Guard":      func(t *testing.T, le *Lease) error { return le.Guard(t.Context(), ran(t)) },
		"Err":        func(_ *testing.T, le *Lease) error { return le.Err() },
		"lose":       func(_ *testing.T, le *Lease) error { return lose(le) },
	}, func(t *testing.T, call func(*testing.T, *Lease) error) {
		d := new(Script)
		first, second := handedOff(t, open(t, d, unrenewed))
		deadline := first.Deadline()
		wantErr(t, second.Extend(t.Context(), time.Minute), nil)
		if got := first.Deadline(); got != deadline {
			t.Errorf("the deadline of the former holder moved by %s", got.Sub(deadline))
		}
		before := second.grant.trust
		wantErr(t, call(t, first), ErrNotHeld)
		after := second.grant.trust
		err, risen := second.Err(), second.Fence()-first.Fence()
		if err != nil || after != before || risen != 1 || d.raised > 0 {
			t.Errorf("the successor: %v, %+v", err, after)
		}
		give(t, first) // a second Release
		give(t, second)
	})
}

// The window of a handoff counts to the end of the step that Release waited for.
func TestRelease_drained_handsOffByTheTimeAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(Script), unrenewed)
		first := take(t, l)
		next := behind(t, l)
		go func() {
			_ = first.Guard(t.Context(), func(context.Context) error { time.Sleep(time.Second); return nil })
		}()
		synctest.Wait()
		give(t, first)
		second := <-next
		if second.grant == first.grant {
			t.Error("handed off a second after the grant")
		}
		give(t, second)
	})
}

// Close ends the lease that is the holder after a handoff under way.
func TestClose_L_releasesTheSuccessorOfAHandoffUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(Script)
		l := open(t, d, unrenewed)
		first := take(t, l)
		next := behind(t, l)
		g := first.grant
		g.mu.Lock() // as in endHere, between the end of the lease and the handoff
		first.state, first.endReason = released, errReleased
		at := time.Now()
		waiter := g.inQueue.Next(at, func(*acquisition, time.Duration) bool { return true })
		closed := make(chan error)
		go func() { closed <- l.Close(t.Context()) }()
		for l.closing.Err() == nil {
			runtime.Gosched()
		}
		g.handOffLocked(waiter, at)
		first.state = removed
		g.mu.Unlock()
		wantErr(t, <-closed, nil)
		wantErr(t, (<-next).Err(), ErrClosed)
		if n := len(d.Released()); n != 1 {
			t.Errorf("%d releases", n)
		}
	})
}

// A copy of the acquisition may still arrive when the successor is released.
func TestRelease_S1_handedOffAfterReplay_leavesTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Script{OnAcquire: func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
			return driver.AcquireReply{Outcome: driver.Granted, Fence: 1, FenceEnd: 1 + driver.FenceBlock, Replayed: true}, nil
		}}
		_, second := handedOff(t, open(t, d, unrenewed))
		give(t, second)
		if got := d.Released(); len(got) != 1 || got[0].Tombstone == 0 {
			t.Errorf("the release left no tombstone: %+v", got)
		}
	})
}

// MaxHold counts for each lease of a grant: the first has no time for a renewal, the second has.
func TestRenewals_handoff_keepsSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(Script)
		// A renewal is due every 300 ms.
		l := open(t, d, Options{Wait: -1, TTL: 900 * time.Millisecond, MaxHold: 299500 * time.Microsecond})
		_, second := handedOff(t, l)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if n := d.Extended(); n != 1 {
			t.Errorf("%d renewals", n)
		}
		<-second.Context().Done()
		if n := d.Extended(); n != 1 {
			t.Errorf("%d renewals beyond MaxHold", n-1)
		}
	})
}

func TestRaiseToken_S2_answerAfterRelease_noEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		l := open(t, &Script{OnRaise: func(_ context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
			<-answer
			return driver.RaiseReply{Held: true, Fence: req.Floor, FenceEnd: req.Floor}, nil
		}}, unrenewed)
		lease := take(t, l)
		first := lease.Fence()
		raised := make(chan error)
		go func() { raised <- lease.raiseToken(t.Context(), first) }()
		synctest.Wait()
		give(t, lease)
		close(answer)
		wantErr(t, <-raised, ErrNotHeld)
		if lease.Fence() != first {
			t.Errorf("the released lease has the token %d, it had %d", lease.Fence(), first)
		}
	})
}

// A lease can be lost in the moment after its handoff. The queue knows it by then.
func TestHandoff_L_successorLostAtOnce_queueGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(Script), unrenewed)
		lease := take(t, l)
		next := behind(t, l)
		g := lease.grant
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
		wantErr(t, <-lost, ErrLost)
		if second := <-next; second != g.holder || !errors.Is(second.Err(), ErrLost) {
			t.Errorf("the waiter was handed %p, not %p", second, g.holder)
		}
		give(t, take(t, l)) // the queue is not stuck
	})
}

// The timer fires for the deadline of the first lease, and finds the second.
func TestHandoff_N_duringALook_deadlineStillEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, second := handedOff(t, open(t, new(Script), unrenewed))
		end := lease.grant.trust.Deadline()
		lease.grant.timer.Stop() // it has fired
		lease.grant.onTimer()
		select {
		case <-second.Context().Done():
		case <-time.After(time.Hour):
		}
		if late := trust.Until(end); late != 0 {
			t.Errorf("%s before the deadline", late)
		}
		wantLost(t, second)
	})
}
