package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// long is a TTL that does not end during a test, however slow the backend is.
	long = 10 * time.Minute
	// short is a TTL whose end tests wait for.
	short = 250 * time.Millisecond
	// tick is how far a backend's clock may be off within a short TTL. The drift of every holder
	// allows for it.
	tick = 2 * time.Millisecond
)

// New is Service.New.
type New = func(tb testing.TB) driver.Driver

// Run tests the drivers of a service. The tests wait for real time, a few seconds in all. Tests
// that disturb the service run first, one after the other, and all others in parallel.
func Run(t *testing.T, service Service) {
	newDriver := service.New
	tests := map[string]func(*testing.T, New){
		"S1_aGrantExcludesOthers":           testExcludes,
		"S1_oneOfManyWins":                  testOneWins,
		"S1_driversOfOneServiceExclude":     testShared,
		"S1_hostileNamesAreDifferentLocks":  testNames,
		"S1_notGrantedAgainBeforeTheTTL":    testNotBeforeTTL,
		"S1_onlyTheOwnerReleases":           testOnlyOwnerReleases,
		"S1_onlyTheOwnerExtends":            testOnlyOwnerExtends,
		"S1_extendNeverGrants":              testExtendNeverGrants,
		"S1_aRepeatedAcquireIsTheSameGrant": testAcquireIdempotent,
		"S1_aCancelledOwnerIsRefused":       testTombstone,
		"S1_aReleasedOwnerIsRefused":        testReleasedRefused,
		"S1_anExpiredOwnerIsRefused":        testExpiredRefused,
		"S2_fencesRise":                     testFencesRise,
		"S2_fencesFollowTheClock":           testFenceClock,
		"S2_blocksDoNotOverlap":             testFenceBlocks,
		"S2_fenceJumpsToTheFloor":           testFenceFloor,
		"S2_aFloorAYearAheadIsRefused":      testFarFloor,
		"S2_raiseIsForTheHolder":            testRaise,
		"S2_raiseGrantsNothing":             testRaiseGrantsNothing,
		"S2_raiseKeepsTheTTL":               testRaiseKeepsTTL,
		"L_releaseFrees":                    testReleaseFrees,
		"L_expiryFrees":                     testExpiryFrees,
		"L_aReplayedReleaseSucceeds":        testReleaseIdempotent,
		"N_extendProlongs":                  testExtendProlongs,
		"N_extendNeverShortensUnlessExact":  testExtendNeverShortens,
		"N_extendAnswersEachOfABatch":       testExtendBatch,
		"C_aCancelledCallGrantsNothing":     testCancelled,
		"inspectShowsTheHolder":             testInspect,
	}
	d := newDriver(t)
	if d.Capabilities().Queues {
		maps.Copy(tests, queueTests)
	} else if _, ok := driver.As[driver.Listener](d); ok {
		maps.Copy(tests, notifyTests)
	}
	if d.Capabilities().Exact {
		maps.Copy(tests, exactTests)
	}
	if _, ok := driver.As[driver.Lister](d); ok {
		maps.Copy(tests, listTests)
	}
	if _, ok := driver.As[driver.Breaker](d); ok {
		maps.Copy(tests, breakTests)
	}
	if _, ok := driver.As[driver.Interrupter](d); ok {
		maps.Copy(tests, askTests)
	}
	if _, ok := driver.As[driver.LossNotifier](d); ok {
		maps.Copy(tests, lossTests)
	}
	for name, test := range service.faultTests() {
		t.Run(name, func(t *testing.T) { test(t, service) })
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newDriver)
		})
	}
}

// queueTests are those of Capabilities.Queues.
var queueTests = map[string]func(*testing.T, New){
	"L_firstComeFirstServed":           testFirstComeFirstServed,
	"L_eachWaiterIsServedOnce":         testAllAreServed,
	"L_noRequestOvertakesTheQueue":     testNoRequestOvertakes,
	"L_noWaiterOvertakesTheQueue":      testNoWaiterOvertakes,
	"L_deadWaitersAreDropped":          testDeadDropped,
	"L_promisesOnlyGrow":               testPromisesOnlyGrow,
	"L_aReturningWaiterKeepsItsTicket": testReentersAtItsTicket,
	"L_leavingHandsOff":                testLeaving,
	"L_aWaiterWithoutWakesIsServed":    testWithoutWakes,
	"L_aClaimHasTheWholeTTL":           testClaim,
	"L_anUnclaimedHandoffExpires":      testUnclaimed,
	"L_theDriverOfTheWaiterIsWoken":    testRightDriver,
	"L_aFullQueueAdmitsNoWaiter":       testFullQueue,
	"S1_aCancelledOwnerDoesNotWait":    testCancelledDoesNotWait,
	"S1_aReleasedOwnerDoesNotWait":     testReleasedDoesNotWait,
	"S1_theHolderDoesNotWaitForItself": testHolderDoesNotWait,
	"S2_raiseLeavesTheQueueAlone":      testRaiseWithWaiters,
}

// Benchmark measures one uncontended acquire and release.
func Benchmark(b *testing.B, newDriver New) {
	s := newSubject(b, newDriver(b))
	for b.Loop() {
		r := s.request()
		s.granted(r)
		s.release(r, true)
	}
}

// subject is a driver and a fresh name, with calls that fail the test if they fail.
type subject struct {
	driver.Driver
	tb   testing.TB
	name driver.Name
}

func newSubject(tb testing.TB, d driver.Driver) *subject {
	return &subject{Driver: d, tb: tb, name: freshName()}
}

func freshName() driver.Name { return driver.Name{Namespace: "drivertest", Key: randomHex()} }

func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// request is one of a new owner.
func (s *subject) request() driver.AcquireRequest {
	return driver.AcquireRequest{Name: s.name, Owner: randomHex(), TTL: long, Holder: "drivertest"}
}

func (s *subject) acquire(req driver.AcquireRequest) driver.AcquireReply {
	s.tb.Helper()
	reply, err := s.Acquire(context.Background(), req)
	if err != nil {
		s.tb.Fatalf("Acquire: %v", err)
	}
	return reply
}

func (s *subject) granted(req driver.AcquireRequest) driver.AcquireReply {
	s.tb.Helper()
	reply := s.acquire(req)
	if reply.Outcome != driver.Granted {
		s.tb.Fatalf("Acquire: outcome %d, want Granted", reply.Outcome)
	}
	return reply
}

func (s *subject) refused(req driver.AcquireRequest, want driver.Outcome) driver.AcquireReply {
	s.tb.Helper()
	reply := s.acquire(req)
	if reply.Outcome != want {
		s.tb.Fatalf("Acquire: outcome %d, want %d", reply.Outcome, want)
	}
	if reply.Fence != 0 || reply.FenceEnd != 0 {
		s.tb.Errorf("a refused acquire shows a fence: %+v", reply)
	}
	return reply
}

func (s *subject) release(req driver.AcquireRequest, want bool) {
	s.tb.Helper()
	s.releaseWithTombstone(req, 0, want)
}

func (s *subject) releaseWithTombstone(req driver.AcquireRequest, void time.Duration, want bool) {
	s.tb.Helper()
	reply, err := s.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: void})
	if err != nil {
		s.tb.Fatalf("Release: %v", err)
	}
	if reply.Released != want {
		s.tb.Fatalf("Release: Released is %t, want %t", reply.Released, want)
	}
}

func (s *subject) extend(req driver.AcquireRequest, ttl time.Duration, exact, want bool) {
	s.tb.Helper()
	extend := driver.ExtendRequest{Name: req.Name, Owner: req.Owner, TTL: ttl, Exact: exact}
	reply := s.Extend(context.Background(), []driver.ExtendRequest{extend})[0]
	if reply.Err != nil {
		s.tb.Fatalf("Extend: %v", reply.Err)
	}
	if reply.Held != want {
		s.tb.Fatalf("Extend: Held is %t, want %t", reply.Held, want)
	}
}

// raised raises the token of the request's owner, which holds the name.
func (s *subject) raised(req driver.AcquireRequest, floor int64) driver.RaiseReply {
	s.tb.Helper()
	reply := s.raise(req, floor)
	if !reply.Held || reply.Fence < floor || reply.FenceEnd < reply.Fence {
		s.tb.Fatalf("Raise: %+v, want a block from %d on", reply, floor)
	}
	return reply
}

// notRaised checks that the request's owner gets no token.
func (s *subject) notRaised(req driver.AcquireRequest, floor int64) {
	s.tb.Helper()
	if reply := s.raise(req, floor); reply != (driver.RaiseReply{}) {
		s.tb.Errorf("Raise by an owner that does not hold the name: %+v", reply)
	}
}

func (s *subject) raise(req driver.AcquireRequest, floor int64) driver.RaiseReply {
	s.tb.Helper()
	reply, err := s.Raise(context.Background(), driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: floor})
	if err != nil {
		s.tb.Fatalf("Raise: %v", err)
	}
	return reply
}

func (s *subject) state() driver.State {
	s.tb.Helper()
	state, err := s.Inspect(context.Background(), s.name)
	if err != nil {
		s.tb.Fatalf("Inspect: %v", err)
	}
	return state
}

// takenOver waits until the name is granted to a new owner and returns that grant; it fails the
// test after a time.
func (s *subject) takenOver() (driver.AcquireRequest, driver.AcquireReply) {
	s.tb.Helper()
	deadline := time.Now().Add(20 * short)
	for time.Now().Before(deadline) {
		req := s.request()
		if reply := s.acquire(req); reply.Outcome == driver.Granted {
			return req, reply
		}
		time.Sleep(time.Millisecond) // a poll, not a hope
	}
	s.tb.Fatal("the name was never free again")
	return driver.AcquireRequest{}, driver.AcquireReply{}
}

// awaitFree waits until the name is free.
func (s *subject) awaitFree() {
	s.tb.Helper()
	for deadline := time.Now().Add(20 * short); s.state().Held; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.tb.Fatal("the grant did not expire")
		}
	}
}

func testExcludes(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	holder.Holder, holder.Metadata = "first", map[string]string{"traceparent": "x"}
	grant := s.granted(holder)
	reply := s.refused(s.request(), driver.Busy)
	st := reply.State
	if !st.Held || st.Holder != "first" || st.Fence != grant.Fence || st.Metadata["traceparent"] != "x" {
		t.Errorf("a busy reply shows %+v, want the holder", st)
	}
}

func testOneWins(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	const contenders = 32
	var (
		wg       sync.WaitGroup
		outcomes = make([]driver.Outcome, contenders)
		start    = make(chan struct{})
	)
	for i := range contenders {
		wg.Go(func() {
			<-start
			reply, err := s.Acquire(context.Background(), s.request())
			if err != nil {
				t.Errorf("Acquire: %v", err)
			}
			outcomes[i] = reply.Outcome
		})
	}
	close(start)
	wg.Wait()
	winners := 0
	for _, o := range outcomes {
		if o == driver.Granted {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d contenders hold the name, want 1", winners, contenders)
	}
}

func testShared(t *testing.T, newDriver New) {
	a, b := newSubject(t, newDriver(t)), newSubject(t, newDriver(t))
	b.name = a.name
	holder := a.request()
	first := a.granted(holder)
	if !a.Capabilities().Shared {
		b.granted(b.request())
		return
	}
	b.refused(b.request(), driver.Busy)
	if st := b.state(); !st.Held || st.Fence != first.Fence {
		t.Errorf("the other driver sees %+v", st)
	}
	a.release(holder, true)
	if second := b.granted(b.request()); second.Fence <= first.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", second.Fence, first.FenceEnd)
	}
}

func testNames(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	unique := randomHex()
	for _, name := range []driver.Name{
		{Namespace: "a", Key: unique + "b:c"}, {Namespace: "a:" + unique + "b", Key: "c"},
		{Namespace: "a", Key: unique + "{b}"}, {Namespace: "a", Key: unique + "{b"}, {Namespace: "a", Key: unique + "b}"},
		{Namespace: "a", Key: unique + "%7D"}, {Namespace: "a", Key: unique + "}"}, {Namespace: "a", Key: unique + "%"},
		{Namespace: "a", Key: unique + "%257D"},
		{Namespace: "a", Key: unique + "}:lock"}, {Namespace: "a", Key: unique + "}:fence"},
		{Namespace: "a", Key: unique + " "}, {Namespace: "a", Key: unique + "  "},
		{Namespace: "a", Key: unique + "ä"}, {Namespace: "a", Key: unique + "a\u0308"},
		{Namespace: "a", Key: unique + "x"}, {Namespace: "a", Key: unique + "X"},
		{Namespace: "a", Key: unique + `'"\$(x);--`},
		{Namespace: "a", Key: unique + "*"}, {Namespace: "a", Key: unique + "?"},
		{Namespace: "a", Key: unique + strings.Repeat("k", 1024-len(unique))},
		{Namespace: "a", Key: unique + strings.Repeat("k", 1023-len(unique))},
		{Namespace: strings.Repeat("n", 128), Key: unique},
	} {
		s.name = name
		req := s.request()
		s.granted(req)
		s.refused(s.request(), driver.Busy)
	}
}

func testNotBeforeTTL(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.TTL = short
	sent := time.Now()
	s.granted(req)
	s.takenOver()
	if after := time.Since(sent); after < short-tick {
		t.Errorf("granted again after %s, before the TTL of %s", after, short)
	}
}

func testOnlyOwnerReleases(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder, other := s.request(), s.request()
	s.granted(holder)
	s.release(other, false)
	s.releaseWithTombstone(other, long, false)
	s.refused(s.request(), driver.Busy)
	s.release(holder, true)
}

func testOnlyOwnerExtends(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	s.granted(holder)
	s.extend(s.request(), long, false, false)
	s.extend(s.request(), short, true, false)
	if s.state().TTL <= short {
		t.Errorf("another owner's extend shortened the grant to %s", s.state().TTL)
	}
	s.extend(holder, long, false, true)
}

func testExtendNeverGrants(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.extend(req, long, false, false)
	s.extend(req, long, true, false)
	s.granted(req)
	s.release(req, true)
	s.extend(req, long, false, false)
	s.extend(req, long, true, false)
	s.granted(s.request())
}

func testAcquireIdempotent(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.TTL = long / 2
	first := s.granted(req)
	req.TTL = long
	second := s.granted(req)
	if first.Fence != second.Fence || first.FenceEnd != second.FenceEnd {
		t.Errorf("the same owner was granted %+v, then %+v", first, second)
	}
	floored := req
	floored.FenceFloor = first.FenceEnd + time.Hour.Microseconds()
	if third := s.granted(floored); third.Fence != first.Fence {
		t.Errorf("a repeated acquire was granted %+v, at first %+v", third, first)
	}
	if left := s.state().TTL; left <= long/2 {
		t.Errorf("a repeated acquire leaves %s of its TTL of %s", left, long)
	}
	req.TTL = long / 2
	s.granted(req)
	if left := s.state().TTL; left <= long/2 {
		t.Errorf("a repeated acquire shortened the grant to %s", left)
	}
}

func testExpiredRefused(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.TTL = short
	s.granted(req)
	s.awaitFree()
	s.refused(req, driver.Cancelled)
	s.extend(req, long, false, false)
	s.release(req, false)
}

func testTombstone(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	never, held := s.request(), s.request()
	s.releaseWithTombstone(never, long, false)
	s.refused(never, driver.Cancelled)

	s.granted(held)
	s.releaseWithTombstone(held, long, true)
	for range 3 { // so that only the mark remembers held
		next := s.request()
		s.granted(next)
		s.release(next, true)
	}
	s.refused(held, driver.Cancelled)
	s.refused(never, driver.Cancelled)
	s.granted(s.request())
}

func testReleasedRefused(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.granted(req)
	s.release(req, true)
	s.refused(req, driver.Cancelled)
	if s.state().Held {
		t.Error("the name is held by an owner that was released")
	}
	next := s.request()
	next.TTL = short
	s.granted(next)
	s.awaitFree()
	s.refused(req, driver.Cancelled)
}

func testReleaseFrees(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.granted(req)
	s.release(req, true)
	if s.state().Held {
		t.Error("held after its release")
	}
	s.granted(s.request())
}

func testExpiryFrees(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.TTL = short
	first := s.granted(req)
	next, second := s.takenOver()
	if second.Fence <= first.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", second.Fence, first.FenceEnd)
	}
	s.extend(req, long, false, false)
	s.release(req, false)
	s.extend(next, long, false, true)
}

func testReleaseIdempotent(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.release(req, false)
	s.granted(req)
	s.release(req, true)
	s.release(req, true)
	next := s.request()
	s.granted(next)
	s.release(req, true) // a replay must not touch the next holder
	if !s.state().Held {
		t.Error("a replayed release ended the next grant")
	}
}
