// Package quorum keeps one lock on several independent drivers, the nodes. The lock survives the
// loss of a minority of the nodes, and its fencing tokens rise. docs/design/redlock.md states the
// protocol.
//
// Read Acquire in acquire.go first, then the decisions in count.go. A poll asks the nodes, see
// poll.go.
package quorum

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// callLimit bounds a call of a node. A shorter TTL bounds the call more.
	callLimit = 2 * time.Second
	// minTombstone is the shortest life of a tombstone, see cleanup.Tombstone of distlock.
	minTombstone = 2 * time.Minute
	// closeGrace is how long Close waits for owed Releases.
	closeGrace = 500 * time.Millisecond
)

// New makes the driver of a lock on an odd number of nodes, at least 3. It closes the nodes with
// itself. A node whose server is up for less than restartDelay does not count, and a longer TTL is
// refused. A negative restartDelay means that all nodes count.
func New(nodes []Node, restartDelay time.Duration) driver.Driver {
	q := &quorum{
		size:         len(nodes)/2 + 1,
		restartDelay: restartDelay,
		began:        time.Now(),
		table:        newTable(),
	}
	q.life, q.end = context.WithCancel(context.Background())
	// ⚑ All processes have the same lowest node.
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return cmp.Compare(a.Name(), b.Name()) })
	for i, of := range nodes {
		q.nodes = append(q.nodes, &node{Node: of, q: q, index: i})
	}
	return q
}

// quorum is the driver.
type quorum struct {
	nodes        []*node // by name
	size         int     // of a quorum
	restartDelay time.Duration
	began        time.Time

	life     context.Context // of the calls of nodes
	end      context.CancelFunc
	calls    sync.WaitGroup // calls of nodes, and owed Releases
	listened sync.WaitGroup
	table
}

func (q *quorum) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "redlock", AcrossProcesses: true}
}

func (q *quorum) sinceBegan() time.Duration { return time.Since(q.began) }

// sleep waits. It fails if ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// limit bounds the calls of an operation.
func limit(ttl time.Duration) time.Duration { return min(ttl, callLimit) }

// copyLife is how long a copy of a request can arrive.
func copyLife(ttl time.Duration) time.Duration { return max(ttl, minTombstone) }

// clock is the highest time that a quorum of nodes has reached; 0: not known.
// ⚑ A minority of nodes with wrong clocks moves no token: one that is years ahead would be refused
// by the other nodes.
func (q *quorum) clock() int64 {
	var few [9]int64
	clocks := few[:0]
	for _, n := range q.nodes {
		clocks = append(clocks, n.clock.Load())
	}
	slices.Sort(clocks)
	clock := clocks[len(clocks)-q.size]
	if clock == 0 {
		return 0
	}
	return clock + q.sinceBegan().Microseconds()
}

// Close implements driver.Driver. It waits for owed Releases for half a second.
func (q *quorum) Close() error {
	grace := time.AfterFunc(closeGrace, q.end)
	q.calls.Wait()
	grace.Stop()
	q.end()
	q.listened.Wait()
	var errs []error
	for _, n := range q.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
