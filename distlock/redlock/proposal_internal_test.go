package redlock

import (
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
)

// at is a proposal of the same owner under another token.
func at(p quorum.Proposal, token int64) quorum.Proposal {
	p.Token = token
	return p
}

// shows fails the test unless a reply shows the last token of the block of p, and a clock near that of
// this machine.
func shows(t *testing.T, reply quorum.Reply, p quorum.Proposal) {
	t.Helper()
	if reply.Last != p.Token+quorum.Block {
		t.Errorf("the last token is %d, want %d", reply.Last, p.Token+quorum.Block)
	}
	if ahead := time.Until(time.UnixMicro(reply.Clock)).Abs(); ahead > time.Minute {
		t.Errorf("the clock is %s off", ahead)
	}
}

func state(t *testing.T, n *node) quorum.State {
	t.Helper()
	reply, err := n.Inspect(t.Context(), name)
	if err != nil || reply.State.Held != (reply.Outcome == quorum.Busy) {
		t.Fatalf("Inspect: %+v, %v", reply, err)
	}
	return reply.State
}

// awaitFree waits for the end of a grant.
func awaitFree(t *testing.T, n *node) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); state(t, n).Held; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the grant does not end")
		}
	}
}

func TestAcquire_S2_tokenAboveTheLast(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	first := propose("a", time.Hour)
	shows(t, mustPropose(t, n, first, quorum.Granted), first)
	shows(t, mustPropose(t, n, first, quorum.Granted), first) // a copy
	if s := state(t, n); s.Fence != first.Token || s.Owner != first.Owner {
		t.Errorf("%+v", s)
	}
	shows(t, mustPropose(t, n, propose("b", 0), quorum.Busy), first)
	mustRelease(t, n, driver.ReleaseRequest{Name: name, Owner: first.Owner})
	for _, low := range []int64{time.Now().UnixMicro(), first.Token, first.Token + quorum.Block} {
		shows(t, mustPropose(t, n, at(propose("b", 0), low), quorum.TooLow), first)
	}
	if state(t, n).Held {
		t.Error("a proposal that was too low has taken the name")
	}
	next := at(propose("b", 0), first.Token+quorum.Block+1)
	shows(t, mustPropose(t, n, next, quorum.Granted), next)
}

func TestAcquire_S2_tokenNearTheClock(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	mustPropose(t, n, propose("a", -driver.FenceKeep-time.Hour), quorum.TooLow)
	if reply, err := n.Acquire(t.Context(), propose("a", driver.FloorAhead+time.Hour)); !errors.Is(err, driver.ErrFloor) || driver.MayHaveEffect(err) {
		t.Errorf("a token more than a year ahead: %+v, %v; want ErrFloor", reply, err)
	}
	if state(t, n).Held {
		t.Error("a refused proposal has taken the name")
	}
	mustPropose(t, n, propose("a", -driver.FenceKeep+time.Hour), quorum.Granted)
}

func TestAcquire_S1_excludesOtherOwners(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	held := propose("a", 0)
	held.Holder = "first"
	mustPropose(t, n, held, quorum.Granted)
	reply := mustPropose(t, n, propose("b", time.Hour), quorum.Busy)
	if s := reply.State; s.Holder != "first" || s.Owner != held.Owner || s.Fence != held.Token || s.TTL <= held.TTL/2 || s.TTL > held.TTL {
		t.Errorf("a busy reply shows %+v, want the holder", reply)
	}
}

func TestAcquire_S1_tokenOfTheHolderRises(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	held := propose("a", 0)
	mustPropose(t, n, held, quorum.Granted)
	mustPropose(t, n, at(held, held.Token+1), quorum.TooLow) // inside its block
	higher := at(held, held.Token+quorum.Block+1)
	higher.TTL = 2 * held.TTL
	mustPropose(t, n, higher, quorum.Granted)
	if s := state(t, n); s.Fence != higher.Token || s.TTL <= held.TTL {
		t.Errorf("%+v, want the token %d and a TTL of %s", s, higher.Token, higher.TTL)
	}
	mustPropose(t, n, held, quorum.TooLow) // a copy that comes late
}

// A copy leaves the TTL of an extended grant.
func TestAcquire_S1_copyShortensNothing(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	held := propose("a", 0)
	mustPropose(t, n, held, quorum.Granted)
	for _, ttl := range []time.Duration{10 * held.TTL, held.TTL} {
		extend := driver.ExtendRequest{Name: name, Owner: held.Owner, TTL: ttl}
		if reply, err := n.Extend(t.Context(), extend); err != nil || reply.Outcome != quorum.Held {
			t.Fatalf("Extend: %+v, %v", reply, err)
		}
		mustPropose(t, n, held, quorum.Granted)
		if left := state(t, n).TTL; left <= 9*held.TTL {
			t.Errorf("%s left", left)
		}
	}
}

// A node that lost a grant by its TTL grants the name to its owner again, under a higher token.
func TestAcquire_S2_blockIsGrantedOnce(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	held := propose("a", 0)
	held.TTL = 300 * time.Millisecond
	mustPropose(t, n, held, quorum.Granted)
	awaitFree(t, n)
	extend := driver.ExtendRequest{Name: name, Owner: held.Owner, TTL: time.Minute}
	if reply, err := n.Extend(t.Context(), extend); err != nil || reply.Outcome != quorum.NotHeld {
		t.Errorf("Extend of a grant that has ended: %+v, %v", reply, err)
	}
	mustPropose(t, n, held, quorum.TooLow)
	mustPropose(t, n, at(held, held.Token+quorum.Block+1), quorum.Granted)
}

func TestAcquire_S1_cancelledOwnerIsRefused(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	over := driver.ReleaseRequest{Name: name, Owner: owner("a"), Tombstone: time.Minute}
	if reply, err := n.Release(t.Context(), over, false); err != nil || reply.Outcome != quorum.NotHeld {
		t.Fatalf("Release: %+v, %v", reply, err)
	}
	mustPropose(t, n, propose("a", 0), quorum.Cancelled)
	released := propose("b", 0)
	mustPropose(t, n, released, quorum.Granted)
	mustRelease(t, n, driver.ReleaseRequest{Name: name, Owner: released.Owner})
	mustPropose(t, n, released, quorum.Cancelled)
	mustPropose(t, n, at(released, released.Token+time.Hour.Microseconds()), quorum.Cancelled)
	mustPropose(t, n, propose("c", time.Hour), quorum.Granted) // the owner before is still known
	mustRelease(t, n, driver.ReleaseRequest{Name: name, Owner: released.Owner})
	mustRelease(t, n, driver.ReleaseRequest{Name: name, Owner: owner("c")})
	mustPropose(t, n, propose("b", 2*time.Hour), quorum.Cancelled)
}

func TestRaise_S2_tokenAboveTheBlock(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	held := propose("a", 0)
	mustPropose(t, n, held, quorum.Granted)
	next := held.Token + quorum.Block + 1
	for _, c := range []struct{ floor, want int64 }{
		// not above the block: the grant keeps its tokens
		{held.Token, held.Token}, {held.Token + quorum.Block, held.Token},
		{next + 7, next + 7}, {next + 7, next + 7}, {next, next + 7},
	} {
		reply, err := n.Raise(t.Context(), driver.RaiseRequest{Name: name, Owner: held.Owner, Floor: c.floor})
		if err != nil || reply.Outcome != quorum.Held || reply.Last != c.want+quorum.Block {
			t.Errorf("a raise to %d: %+v, %v; want %d", c.floor, reply, err, c.want)
		}
	}
	if left := state(t, n).TTL; left > held.TTL {
		t.Errorf("a raise has prolonged the grant to %s", left)
	}
	far := driver.RaiseRequest{Name: name, Owner: held.Owner, Floor: time.Now().Add(driver.FloorAhead + time.Hour).UnixMicro()}
	if reply, err := n.Raise(t.Context(), far); !errors.Is(err, driver.ErrFloor) {
		t.Errorf("a raise by more than a year: %+v, %v", reply, err)
	}
	mustRelease(t, n, driver.ReleaseRequest{Name: name, Owner: held.Owner})
	mustPropose(t, n, at(propose("b", 0), next+7+quorum.Block), quorum.TooLow)
}

func TestNode_S1_onlyTheOwner(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	held := propose("a", 0)
	mustPropose(t, n, held, quorum.Granted)
	extend := driver.ExtendRequest{Name: name, Owner: owner("b"), TTL: time.Hour}
	if reply, err := n.Extend(t.Context(), extend); err != nil || reply.Outcome != quorum.NotHeld {
		t.Errorf("Extend: %+v, %v", reply, err)
	}
	raise := driver.RaiseRequest{Name: name, Owner: owner("b"), Floor: held.Token + time.Hour.Microseconds()}
	if reply, err := n.Raise(t.Context(), raise); err != nil || reply.Outcome != quorum.NotHeld {
		t.Errorf("Raise: %+v, %v", reply, err)
	}
	over := driver.ReleaseRequest{Name: name, Owner: owner("b")}
	if reply, err := n.Release(t.Context(), over, false); err != nil || reply.Outcome != quorum.NotHeld {
		t.Errorf("Release: %+v, %v", reply, err)
	}
	if s := state(t, n); s.Owner != held.Owner || s.Fence != held.Token || s.TTL <= held.TTL/2 || s.TTL > held.TTL {
		t.Errorf("%+v", s)
	}
	extend.Owner = held.Owner
	if reply, err := n.Extend(t.Context(), extend); err != nil || reply.Outcome != quorum.Held || state(t, n).TTL <= held.TTL {
		t.Errorf("an Extend of the owner: %+v, %v, %+v", reply, err, state(t, n))
	}
}
