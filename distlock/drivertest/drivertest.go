package drivertest

import (
	"maps"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// long is a TTL that does not end during a test, however slow the backend is.
	long = 10 * time.Minute
	// short is a TTL whose end tests wait for.
	short = 400 * time.Millisecond
	// brief is a TTL that lasts while a few waiters enter, and whose end tests wait for.
	brief = 5 * short
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
		"N_extendNeverShortens":             testExtendNeverShortens,
		"N_extendAnswersEachOfABatch":       testExtendBatch,
		"C_aCancelledCallDoesNothing":       testCancelled,
		"inspectShowsTheHolder":             testInspect,
	}
	d := newDriver(t)
	if d.Capabilities().Queues {
		maps.Copy(tests, queueTests)
	} else if _, ok := driver.As[driver.Listener](d); ok {
		maps.Copy(tests, notifyTests)
	}
	if _, ok := driver.As[driver.Lister](d); ok {
		maps.Copy(tests, listTests)
	}
	if _, ok := driver.As[driver.Breaker](d); ok {
		maps.Copy(tests, breakTests)
	}
	if asker(d) != nil {
		maps.Copy(tests, askTests)
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
