package quorum

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxCalls is how many calls a node may have under way that does not answer for fullAfter. Then
	// no Acquire is sent to it. ⚑ A node that hangs costs no more.
	maxCalls  = 64
	fullAfter = 500 * time.Millisecond
	// silentAfter is how long a call of a node has no answer before the node is silent.
	silentAfter = 100 * time.Millisecond
	// uptimeError is by how much the start of a server may differ between two calls: uptimes are
	// rounded.
	uptimeError = 2 * time.Second
)

// node is a Node as the driver uses it.
type node struct {
	Node
	q      *quorum
	index  int
	up     Upper        // nil: the node is never young
	calls  atomic.Int32 // under way
	failed atomic.Bool  // the last call had no answer
	// lastAnswer is when the node last answered, or when a call began while none was under way. It
	// counts from the beginning of the driver.
	lastAnswer atomic.Int64
	clock      atomic.Int64 // of its server when the driver began, in µs; 0: not known
	restart    restart
	owed       owedReleases
}

// restart is the last start of a server that the driver has noticed.
type restart struct {
	mu    sync.Mutex
	start time.Duration // since the driver began
	delay time.Duration // how long the node is young; 0: no start is known
}

// enter counts a call.
func (n *node) enter() {
	if n.calls.Add(1) == 1 {
		n.lastAnswer.Store(int64(n.q.sinceBegan()))
	}
}

// full reports whether no Acquire is sent to the node. A Release or Extend is always sent.
func (n *node) full() bool { return n.calls.Load() >= maxCalls && n.sinceAnswer() > fullAfter }

// silent reports whether the node may be away. In contention no Acquire waits for it.
func (n *node) silent() bool {
	return n.failed.Load() || n.calls.Load() > 0 && n.sinceAnswer() > silentAfter
}

func (n *node) sinceAnswer() time.Duration {
	return n.q.sinceBegan() - time.Duration(n.lastAnswer.Load())
}

// leave counts the end of a call. answered says that the node has answered.
func (n *node) leave(answered bool) {
	n.failed.Store(!answered)
	if answered {
		n.lastAnswer.Store(int64(n.q.sinceBegan()))
	}
	n.calls.Add(-1)
}

// sawClock notes the clock of the node.
func (n *node) sawClock(clock int64) {
	if clock > 0 {
		n.clock.Store(clock - n.q.sinceBegan().Microseconds())
	}
}

// young reports whether the server may have started after a grant that has not ended. took is the
// time of the call that the node has just answered.
//
// ⚑ Up is asked after the call: the server may have restarted before. ⚑ The delay of a restart
// stays as it was when the driver noticed the restart: a grant of that time lasts no longer.
func (n *node) young(took time.Duration) bool {
	if n.up == nil || n.q.restartDelay < 0 {
		return false
	}
	up := n.up.Up()
	start := n.q.sinceBegan() - up
	n.restart.mu.Lock()
	defer n.restart.mu.Unlock()
	if n.restart.delay == 0 || start > n.restart.start+uptimeError {
		n.restart.start, n.restart.delay = start, n.q.delay()
	}
	return up-took < n.restart.delay
}

// youth is how long the node is young after a start.
func (n *node) youth() time.Duration {
	n.restart.mu.Lock()
	defer n.restart.mu.Unlock()
	return n.restart.delay
}
