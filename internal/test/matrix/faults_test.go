package matrix

import (
	"slices"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// row is a fault.
type row struct {
	name  string
	run   func(t *testing.T, s *service)
	own   bool     // it breaks its servers for good, and has them to itself
	on    []string // topologies; nil: all but a standby
	args  []string // for its own servers
	alone bool     // it measures how soon something happens, or changes the shared server for all
}

// ofRedisAlone is for faults that PostgreSQL does not have, or that postgresRows cause in another way.
// ofOneServer are about one server's queue, record or session, which a quorum does not have.
var (
	ofRedisAlone = servers.Topologies
	ofOneServer  = slices.Concat(ofRedisAlone, []string{"postgres"})
	scripted     = slices.Concat(ofRedisAlone, servers.Quorums)
	// onePerKind is for faults of a client, which no failover and no number of nodes changes.
	onePerKind = []string{"node", "postgres", "redlock3"}
)

var rows = []row{
	{name: "holderKilled", run: holderKilled},
	{name: "holderStopped/newHolderHasWritten", run: holderStoppedWritten, on: onePerKind},
	{name: "holderStopped/newHolderHasLoaded", run: holderStoppedLoaded, on: onePerKind},
	{name: "holderStopped/newHolderHasCleared", run: holderStoppedCleared, on: onePerKind},
	{name: "holderStopped/sessionHasExpired", run: holderStoppedExpired, on: onePerKind},
	{name: "replaceKilled", run: replaceKilled, on: ofOneServer},
	{name: "serviceShutDown", run: serviceShutDown},
	{name: "wakeUpLost", run: wakeUpLost, on: ofOneServer},
	{name: "notificationMissed", run: notificationMissed, on: ofOneServer},
	{name: "waiterDies/head", run: waiterDies("head"), on: ofOneServer},
	{name: "waiterDies/middle", run: waiterDies("middle"), on: ofOneServer},
	{name: "waiterDies/afterHandoff", run: waiterDies("afterHandoff"), on: ofOneServer},
	{name: "serverRestartedEmpty", run: serverRestartedEmpty, on: ofRedisAlone, own: true},
	{name: "failoverLosesTheLock", run: failoverLosesTheLock, own: true, on: []string{"sentinel", "cluster", "standby"}},
	{name: "masterReplacedButAlive", run: masterReplacedButAlive, own: true, on: []string{"sentinel"}},
	{name: "sentinelsGone", run: sentinelsGone, own: true, on: []string{"sentinel"}},
	{name: "failoverKeepsTheLock", run: failoverKeepsTheLock, own: true, on: []string{"sentinel", "cluster", "standby"}},
	{name: "failoverKeepsTheQueue", run: failoverKeepsTheQueue, own: true, on: []string{"sentinel", "cluster", "standby"}},
	{name: "failoverIsWaitedFor", run: failoverIsWaitedFor, own: true, on: []string{"sentinel", "cluster", "standby"}},
	{name: "holdersCutOff", run: holdersCutOff, alone: true},
	{name: "slowServer", run: slowServer, alone: true},
	{name: "cancelledAnywhere", run: cancelledAnywhere, on: []string{"sentinel", "cluster", "postgres"}, alone: true},
	{name: "cancelledPacketIsLate", run: cancelledPacketIsLate, alone: true},
	{name: "repliesLost", run: repliesLost, on: []string{"sentinel", "cluster", "postgres"}},
	{name: "sessionRepliesLost", run: sessionRepliesLost},
	{name: "sessionPacketIsLate", run: sessionPacketIsLate},
	{name: "poolUsedUp", run: poolUsedUp, on: ofOneServer},
	{name: "scriptsFlushed", run: scriptsFlushed, on: scripted, alone: true},
	{name: "outOfMemory", run: outOfMemory, on: ofRedisAlone, alone: true},
	{name: "recordDeleted", run: recordDeleted, on: ofOneServer},
	{name: "slotMoves", run: slotMoves, on: []string{"cluster"}, alone: true},
	{name: "replicaAnswers", run: replicaAnswers, on: []string{"node", "standby"}},
	{name: "readOnly", run: readOnly, on: []string{"node"}, own: true},
	{name: "loading", run: loading, on: []string{"node"}, own: true, args: []string{"--enable-debug-command", "local"}},
	{name: "busyScript", run: busyScript, on: ofRedisAlone, alone: true},
	{name: "slotOnTheMove", run: slotOnTheMove, on: []string{"cluster"}, own: true},
	{name: "rightsMissing", run: rightsMissing, on: ofRedisAlone, alone: true},
	{name: "hostileMessages", run: hostileMessages, on: []string{"node", "postgres"}},
	{name: "brokenEntries", run: brokenEntries, on: []string{"node"}},
	{name: "foreignSessionData", run: foreignSessionData, on: []string{"node"}},
	{name: "twoNamespaces", run: twoNamespaces, on: ofOneServer},
	{name: "longSnapshot", run: longSnapshot, on: []string{"postgres"}},
	{name: "statementTimeout", run: statementTimeout, on: []string{"postgres"}},
	{name: "serverCrashes", run: serverCrashes, on: []string{"postgres"}, own: true},
	{name: "poolerRestarted", run: poolerRestarted, on: []string{"postgres"}, own: true},
	{name: "nodesDown/killed", run: nodesDown(killed), on: servers.Quorums, own: true},
	{name: "nodesDown/stopped", run: nodesDown(stopped), on: servers.Quorums, own: true},
	{name: "nodeSlow", run: nodeSlow, on: servers.Quorums},
	{name: "nodesRestartedEmpty/delay", run: nodesRestartedEmpty, on: servers.Quorums, own: true},
	{name: "nodesRestartedEmpty/noDelay", run: nodesRestartedWithoutDelay, on: servers.Quorums, own: true},
	{name: "grantsEnd", run: grantsEnd, on: servers.Quorums},
	{name: "nodesReadOnly", run: nodesReadOnly, on: servers.Quorums, own: true},
}

// eachRow calls run with the rows of each topology that have, or have not, servers of their own.
func eachRow(t *testing.T, own bool, run func(t *testing.T, topology string, rows []row)) {
	stalls = leakcheck.NewWatch()
	defer stalls.Stop()
	for _, topology := range topologies {
		t.Run(topology, func(t *testing.T) {
			here := slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
				return r.own != own || r.on != nil && !slices.Contains(r.on, topology) || r.on == nil && topology == "standby"
			})
			if len(here) > 0 {
				run(t, topology, here)
			}
		})
	}
}

// TestFaults runs the rows that share the servers of their topology.
// The rows that run alone come first, then the others run side by side.
func TestFaults(t *testing.T) {
	eachRow(t, false, func(t *testing.T, topology string, rows []row) {
		s := startService(t, topology)
		if s.Topology != nil {
			s.Patient(time.Minute) // a row that stops the master for a moment is not about its replacement
		}
		slices.SortStableFunc(rows, func(a, b row) int {
			switch {
			case a.alone == b.alone:
				return 0
			case a.alone:
				return -1
			}
			return 1
		})
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				if !row.alone {
					t.Parallel()
				}
				row.run(t, s)
			})
		}
	})
}

// TestFaults_ownServers runs the rows that have servers of their own, two at a time.
func TestFaults_ownServers(t *testing.T) {
	places := make(chan struct{}, 2)
	eachRow(t, true, func(t *testing.T, topology string, rows []row) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				places <- struct{}{}
				defer func() { <-places }()
				row.run(t, startService(t, topology, row.args...))
			})
		}
	})
}
