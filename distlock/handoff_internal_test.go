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

func TestHandoff_conditions(t *testing.T) {
	const ttl = 30 * time.Second
	at, age := time.Now(), time.Duration(0)
	closed, closeLocker := context.WithCancel(t.Context())
	closeLocker()
	for name, c := range map[string]struct {
		change func(*grant)
		want   bool
	}{
		"all met":              {func(*grant) {}, true},
		"a quarter left":       {func(g *grant) { g.trust = trust.Granted(trust.At(at.Add(-ttl*3/4)), ttl) }, false},
		"a closed Locker":      {func(g *grant) { g.locker.closing = closed }, false},
		"a change":             {func(g *grant) { g.changed = true }, false},
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
		c.change(g)
		if got := g.mayHandOffLocked(at, age, ttl); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// handedOff makes a lease and its successor in a local handoff.
func handedOff(t *testing.T, l *Locker, during func(*Lease)) (first, second *Lease) {
	t.Helper()
	first = take(t, l)
	next := behind(t, l)
	time.Sleep(time.Millisecond) // tokens come with time
	during(first)
	give(t, first)
	second = <-next
	if second.grant != first.grant || second.Fence() != first.Fence()+1 {
		t.Fatalf("no handoff: token %d after %d", second.Fence(), first.Fence())
	}
	return first, second
}

// A lease and its successor have one grant in the backend.
func TestLease_N_formerHolderLeavesTheGrantAlone(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *Lease) error{
		"Extend":     func(t *testing.T, le *Lease) error { return le.Extend(t.Context(), time.Second) },
		"raiseToken": func(t *testing.T, le *Lease) error { return le.raiseToken(t.Context(), le.Fence()+5) },
		"Guard":      func(t *testing.T, le *Lease) error { return le.Guard(t.Context(), ran(t)) },
		"Err":        func(_ *testing.T, le *Lease) error { return le.Err() },
		"lose":       func(_ *testing.T, le *Lease) error { return lose(le) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := new(minter)
				l := open(t, d, unrenewed)
				first, second := handedOff(t, l, func(*Lease) {})
				deadline := first.Deadline()
				if err := second.Extend(t.Context(), time.Minute); err != nil {
					t.Fatal(err)
				}
				if got := first.Deadline(); got != deadline {
					t.Errorf("the deadline of the former holder moved by %s", got.Sub(deadline))
				}
				before := second.grant.trust
				if err := call(t, first); !errors.Is(err, ErrNotHeld) {
					t.Errorf("%v, want ErrNotHeld", err)
				}
				after := second.grant.trust
				err, risen := second.Err(), second.Fence()-first.Fence()
				if err != nil || after != before || risen != 1 || d.raises > 0 {
					t.Errorf("the successor: %v, %+v", err, after)
				}
				if err := first.Release(t.Context()); err != nil {
					t.Errorf("a second Release: %v", err)
				}
				give(t, second)
			})
		})
	}
}

// The window of a handoff counts to the end of the step that Release waited for.
func TestRelease_drained_handsOffByTheTimeAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(minter), unrenewed)
		first := take(t, l)
		next := behind(t, l)
		began := make(chan struct{})
		go func() {
			_ = first.Guard(t.Context(), func(context.Context) error {
				close(began)
				time.Sleep(time.Second)
				return nil
			})
		}()
		<-began
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
		d := new(minter)
		l := open(t, d, unrenewed)
		first := take(t, l)
		next := behind(t, l)
		time.Sleep(time.Millisecond)
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
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if second := <-next; !errors.Is(second.Err(), ErrClosed) || d.releases != 1 {
			t.Errorf("the successor: %v; %d releases", second.Err(), d.releases)
		}
	})
}

// A copy of the acquisition may still arrive when the successor is released.
func TestRelease_S1_handedOffAfterReplay_leavesTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &minter{replayed: true}
		l := open(t, d, unrenewed)
		_, second := handedOff(t, l, func(*Lease) {})
		give(t, second)
		if !d.tombstone {
			t.Error("the release left no tombstone")
		}
	})
}

// MaxHold counts for each lease of a grant: the first has no time for a renewal, the second has.
func TestRenewals_handoff_keepsSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(minter)
		l := open(t, d, Options{
			Wait: -1, TTL: time.Second, RenewEvery: 300 * time.Millisecond, MaxHold: 299500 * time.Microsecond})
		_, second := handedOff(t, l, func(*Lease) {})
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if d.extends != 1 {
			t.Errorf("%d renewals", d.extends)
		}
		<-second.Context().Done()
		if d.extends != 1 {
			t.Errorf("%d renewals beyond MaxHold", d.extends-1)
		}
	})
}

// Go's timers stand still while the machine is suspended.
func TestLease_N_suspend_endsWithinASecond(t *testing.T) {
	for name, every := range map[string]time.Duration{"renewed": 10 * time.Second, "not renewed": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, new(minter), Options{TTL: 30 * time.Second, RenewEvery: every})
				give(t, take(t, l))
				time.Sleep(time.Minute) // without a lease
				lease := take(t, l)
				time.Sleep(time.Second)
				suspendFor(t, time.Hour)
				l.allGrants() // for the race detector
				time.Sleep(time.Second)
				synctest.Wait()
				if cause := context.Cause(lease.Context()); cause != ErrLost {
					t.Errorf("after a second: %v", cause)
				}
			})
		})
	}
}

func TestRenewals_N_suspend_setsTheAlarmAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(minter)
		l := open(t, d, Options{TTL: 30 * time.Second, RenewEvery: 10 * time.Second})
		lease := take(t, l)
		suspendFor(t, 5*time.Second)
		l.allGrants() // for the race detector
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if d.extends != 1 {
			t.Errorf("%d renewals within 11 s, want 1", d.extends)
		}
		give(t, lease)
	})
}
