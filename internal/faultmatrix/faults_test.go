package faultmatrix

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/testservers"
)

// rows are the faults. A row that breaks its servers for good has them to itself, and runs beside others like it when those of its
// topology that share theirs are done: on two processors two at a time, whatever their topologies.
var rows = []struct {
	name  string
	run   func(t *testing.T, s *service)
	fresh bool
	on    []string // topologies; nil: all
	args  []string // for its servers
	alone bool     // it measures how soon something happens; on the servers that are shared
}{
	{name: "holderKilled", run: holderKilled},
	{name: "holderStopped/newHolderHasWritten", run: holderStoppedWritten},
	{name: "holderStopped/newHolderHasLoaded", run: holderStoppedLoaded},
	{name: "holderStopped/newHolderHasCleared", run: holderStoppedCleared},
	{name: "holderStopped/sessionHasExpired", run: holderStoppedExpired},
	{name: "serviceShutDown", run: serviceShutDown},
	{name: "wakeUpLost", run: wakeUpLost},
	{name: "notificationMissed", run: notificationMissed},
	{name: "waiterDies/head", run: waiterDies("head")},
	{name: "waiterDies/middle", run: waiterDies("middle")},
	{name: "waiterDies/justHandedOver", run: waiterDies("justHandedOver")},
	{name: "serverRestartedEmpty", run: serverRestartedEmpty, fresh: true},
	{name: "failoverLosesTheLock", run: failoverLosesTheLock, fresh: true, on: []string{"sentinel", "cluster"}},
	{name: "masterReplacedButAlive", run: masterReplacedButAlive, fresh: true, on: []string{"sentinel"}},
	{name: "sentinelsGone", run: sentinelsGone, fresh: true, on: []string{"sentinel"}},
	{name: "failoverKeepsTheLock", run: failoverKeepsTheLock, fresh: true, on: []string{"sentinel", "cluster"}},
	{name: "failoverKeepsTheLine", run: failoverKeepsTheLine, fresh: true, on: []string{"sentinel", "cluster"}},
	{name: "failoverIsWaitedFor", run: failoverIsWaitedFor, fresh: true, on: []string{"sentinel", "cluster"}},
	{name: "holdersCutOff", run: holdersCutOff, alone: true},
	{name: "slowServer", run: slowServer, alone: true},
	{name: "cancelledAnywhere", run: cancelledAnywhere, alone: true},
	{name: "cancelledPacketIsLate", run: cancelledPacketIsLate, alone: true},
	{name: "repliesLost", run: repliesLost},
	{name: "sessionRepliesLost", run: sessionRepliesLost},
	{name: "sessionPacketIsLate", run: sessionPacketIsLate},
	{name: "poolUsedUp", run: poolUsedUp},
	{name: "scriptsFlushed", run: scriptsFlushed},
	{name: "outOfMemory", run: outOfMemory},
	{name: "readOnly", run: readOnly, on: []string{"node"}, fresh: true},
	{name: "loading", run: loading, on: []string{"node"}, fresh: true, args: []string{"--enable-debug-command", "local"}},
	{name: "busyScript", run: busyScript},
	{name: "slotMoved", run: slotMoved, on: []string{"cluster"}, fresh: true},
	{name: "slotOnTheMove", run: slotOnTheMove, on: []string{"cluster"}, fresh: true},
	{name: "rightsMissing", run: rightsMissing},
	{name: "foreignData", run: foreignData},
	{name: "hostileNames", run: hostileNames},
	{name: "hostileMessages", run: hostileMessages},
	{name: "brokenEntries", run: brokenEntries},
	{name: "foreignSessionData", run: foreignSessionData},
}

func TestFaults(t *testing.T) {
	var others sync.RWMutex
	for _, topology := range testservers.Topologies {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			shared := startService(t, topology)
			shared.Patient(time.Minute) // a row that stops the master for a moment is not about its replacement
			run := func(alone bool) {
				for _, row := range rows {
					if row.alone != alone || row.on != nil && !slices.Contains(row.on, topology) {
						continue
					}
					t.Run(row.name, func(t *testing.T) {
						if row.fresh {
							t.Parallel()
						}
						if !alone {
							others.RLock()
							defer others.RUnlock()
						}
						s := shared
						if row.fresh {
							s = startService(t, topology, row.args...)
						}
						row.run(t, s)
					})
				}
			}
			run(false)
			// One after the other, so that the other topologies stop for them once.
			others.Lock()
			defer others.Unlock()
			run(true)
		})
	}
}
