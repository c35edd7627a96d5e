package quorum

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// most is the number of calls of a node that hangs after which no Acquire is sent to it. ⚑ It costs no
	// more.
	most = 64
	// silence is for how long the calls of a silent node wait, and hanging for how long before calls are
	// not sent.
	silence = 100 * time.Millisecond
	hanging = 500 * time.Millisecond
	// restarted is how much later than before the start of a server has to be: its uptime is rounded.
	restarted = 2 * time.Second
)

// node is a Node as the driver uses it.
type node struct {
	Node
	q      *quorum
	index  int
	up     Upper        // nil: the node is never young
	under  atomic.Int32 // calls under way
	heard  atomic.Int64 // the last answer, or the first call after all others had ended; since the driver began
	failed atomic.Bool  // the last call had no answer
	clock  atomic.Int64 // of its server when the driver began, in µs; 0: not known
	life
	debts
}

// life is the present life of a server.
type life struct {
	mu    sync.Mutex
	start time.Duration // since the driver began
	delay time.Duration // how long the node is young; 0: no start is known
}

// enter counts a call.
func (n *node) enter() {
	if n.under.Add(1) == 1 {
		n.heard.Store(int64(n.q.sinceBegan()))
	}
}

// full reports whether a further call has to wait for too many others. A Release never does: a holder must
// be able to let go.
func (n *node) full() bool {
	return n.under.Load() >= most && n.q.sinceBegan()-time.Duration(n.heard.Load()) > hanging
}

func (n *node) silent() bool { return n.q.sinceBegan()-time.Duration(n.heard.Load()) > silence }

// left gives up the place of a call. answered says that the node has answered.
func (n *node) left(answered bool) {
	n.failed.Store(!answered)
	if answered {
		n.heard.Store(int64(n.q.sinceBegan()))
	}
	n.under.Add(-1)
}

// suspect reports whether the node may be away. In contention it is not awaited.
func (n *node) suspect() bool { return n.failed.Load() || n.under.Load() > 0 && n.silent() }

// sawClock notes the clock of the node.
func (n *node) sawClock(clock int64) {
	if clock > 0 {
		n.clock.Store(clock - n.q.sinceBegan().Microseconds())
	}
}

// young reports whether the server may have started after a grant that has not ended. took is the time
// of the call that the node has just answered.
//
// ⚑ Up is asked after the call: the server may have restarted before. ⚑ The delay of a restart stays as
// it was when the driver noticed the restart: a grant of that time lasts no longer.
func (n *node) young(took time.Duration) bool {
	if n.up == nil || n.q.restartDelay < 0 {
		return false
	}
	up := n.up.Up()
	start := n.q.sinceBegan() - up
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	if n.delay == 0 || start > n.start+restarted {
		n.start, n.delay = start, n.q.delay()
	}
	return up-took < n.delay
}

// youth is how long the node is young after a start.
func (n *node) youth() time.Duration {
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	return n.delay
}
