package matrix

import (
	"maps"
	"os"
	"slices"
	"strings"
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
	on    []string // topologies
	alone bool     // it measures how soon something happens, or changes the shared server for all
}

// A row runs on each topology where its fault differs. Sentinel is a node until the master changes
// or the client connects. A Cluster differs where the client follows redirections, and where
// messages go.
var (
	oneServer = []string{"node", "postgres"}             // a fault of the record, the queue or the session
	perKind   = []string{"node", "postgres", "redlock3"} // a fault of a client
	connected = []string{"cluster", "postgres"}          // internal/test/sweeps has the node
	replaced  = []string{"sentinel", "cluster", "standby"}
	quorum    = []string{"redlock3"}
)

var rows = []row{
	{name: "holderKilled", run: holderKilled, on: perKind},
	{name: "holderStopped/newHolderHasWritten", run: holderStopped("written", written), on: perKind},
	{name: "holderStopped/newHolderHasLoaded", run: holderStopped("loaded", loaded), on: perKind},
	{name: "holderStopped/newHolderHasCleared", run: holderStopped("cleared", emptied), on: perKind},
	{name: "holderStopped/sessionHasExpired", run: holderStopped("expired", expired), on: perKind},
	{name: "wakeUpLost", run: wakeUpLost, on: []string{"node", "cluster", "postgres"}},
	{name: "waiterDies/head", run: waiterDies("head"), on: oneServer},
	{name: "waiterDies/middle", run: waiterDies("middle"), on: oneServer},
	{name: "waiterDies/afterHandoff", run: waiterDies("afterHandoff"), on: oneServer},
	{name: "serverRestartedEmpty", run: serverRestartedEmpty, on: servers.Topologies, own: true},
	{name: "failoverLosesTheLock", run: failoverLosesTheLock, own: true, on: replaced},
	{name: "masterReplacedButAlive", run: masterReplacedButAlive, own: true, on: []string{"sentinel"}},
	{name: "sentinelsGone", run: sentinelsGone, own: true, on: []string{"sentinel"}},
	{name: "failoverKeepsTheLock", run: failoverKeepsTheLock, own: true, on: replaced},
	{name: "failoverKeepsTheQueue", run: failoverKeepsTheQueue, own: true, on: replaced},
	{name: "failoverIsWaitedFor", run: failoverIsWaitedFor, own: true, on: replaced},
	{name: "holdersCutOff", run: holdersCutOff, on: perKind, alone: true},
	{name: "cancelledAnywhere", run: cancelledAnywhere, on: []string{"sentinel", "cluster", "postgres"}, alone: true},
	{name: "cancelledPacketIsLate", run: cancelledPacketIsLate, on: perKind, alone: true},
	{name: "repliesLost", run: repliesLost, on: connected},
	{name: "sessionRepliesLost", run: sessionRepliesLost, on: connected},
	{name: "scriptsFlushed", run: scriptsFlushed, on: []string{"node", "cluster", "redlock3"}, alone: true},
	{name: "recordDeleted", run: recordDeleted, on: oneServer},
	{name: "slotMoves", run: slotMoves, on: []string{"cluster"}, alone: true},
	{name: "slotOnTheMove", run: slotOnTheMove, on: []string{"cluster"}, own: true},
	{name: "replicaAnswers", run: replicaAnswers, on: []string{"node", "standby"}},
	{name: "rightsMissing", run: rightsMissing, on: []string{"cluster"}, alone: true},
	{name: "twoNamespaces", run: twoNamespaces, on: oneServer},
	{name: "serverCrashes", run: serverCrashes, on: []string{"postgres"}, own: true},
	{name: "poolerRestarted", run: poolerRestarted, on: []string{"postgres"}, own: true},
	{name: "nodesDown/killed", run: nodesDown(killed), on: servers.Quorums, own: true},
	{name: "nodesDown/stopped", run: nodesDown(stopped), on: quorum, own: true},
	{name: "nodesRestartedEmpty/delay", run: nodesRestartedEmpty, on: quorum, own: true},
	{name: "nodesRestartedEmpty/noDelay", run: nodesRestartedWithoutDelay, on: quorum, own: true},
	{name: "grantsEnd", run: grantsEnd, on: quorum},
}

// eachRow calls run with the rows of each topology that have, or have not, servers of their own.
func eachRow(t *testing.T, own bool, run func(t *testing.T, topology string, rows []row)) {
	stalls = leakcheck.NewWatch()
	defer stalls.Stop()
	for _, topology := range topologies {
		t.Run(topology, func(t *testing.T) {
			here := slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
				return r.own != own || !slices.Contains(r.on, topology)
			})
			if len(here) > 0 {
				run(t, topology, here)
			}
		})
	}
}

// TestFaults runs the rows that share the servers of their topology. The rows that run alone come
// first, then the others run side by side.
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
				row.run(t, startService(t, topology))
			})
		}
	})
}

// The page lists the faults that are tested, and where, no more and no less.
func TestReliabilityPage_listsTheFaults(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reports/faults-2026-11.md")
	if err != nil {
		t.Fatal(err)
	}
	listed, tested := make(map[string]string), make(map[string]string)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) == 6 && strings.HasPrefix(cells[1], " `") {
			listed[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	for _, row := range rows {
		tested[row.name] = strings.Join(row.on, ", ")
	}
	if !maps.Equal(listed, tested) {
		t.Errorf("the page lists\n%q\nand tested are\n%q", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(tested)))
	}
}
