package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Block is how many tokens follow the first one of a grant.
// ⚑ A longer block would refuse each other proposal for as long as the block lasts.
const Block = 255

// Node is one server. A call blocks until ctx ends, and no longer. It sends its request once, and its
// errors have the kinds of package driver. A Reply that is not an answer to the call is an error.
type Node interface {
	// Name is host:port.
	Name() string
	// Up returns for how long the server is up at least. It returns at once.
	Up() time.Duration
	// Acquire grants a name under the block of a proposal, or not at all. It answers Granted, Busy,
	// TooLow or Cancelled.
	Acquire(ctx context.Context, p Proposal) (Reply, error)
	// Raise gives the holder the block from Floor on, unless the holder's block is higher. It answers
	// Held or NotHeld.
	Raise(ctx context.Context, req driver.RaiseRequest) (Reply, error)
	// Extend sets the TTL of a grant. It answers Held or NotHeld.
	Extend(ctx context.Context, req driver.ExtendRequest) (Reply, error)
	// Release ends a grant, and cancels the owner. It answers Released or NotHeld. If quiet, it
	// notifies no waiter.
	Release(ctx context.Context, req driver.ReleaseRequest, quiet bool) (Reply, error)
	// Inspect answers Busy or Free.
	Inspect(ctx context.Context, name driver.Name) (Reply, error)
	// Listen notifies of each release of a name that is not quiet, as that of driver.Listener.
	Listen(ctx context.Context, name driver.Name) (notices <-chan driver.Wake, stop func(), err error)
	Close() error
}

// Proposal asks a node for a name under the block of tokens from Token on.
type Proposal struct {
	Name     driver.Name
	Owner    string // of this attempt, see nodeOwner
	TTL      time.Duration
	Token    int64
	Holder   string
	Metadata map[string]string
	Frees    bool // see driver.AcquireRequest
}

// Outcome is the answer of a node in a word.
type Outcome string

const (
	Granted   Outcome = "granted"   // the owner holds the name under the block
	Busy      Outcome = "busy"      // an owner holds the name
	TooLow    Outcome = "too low"   // the token is not above Last, or is older than driver.FenceKeep
	Cancelled Outcome = "cancelled" // the owner was released, or has a tombstone
	Held      Outcome = "held"      // the owner holds the name
	NotHeld   Outcome = "not held"  // which is final
	Released  Outcome = "released"  // by this request or an earlier one
	Free      Outcome = "free"
)

// Reply is the answer of a node to any request.
type Reply struct {
	Outcome Outcome
	Last    int64 // the highest token that is reserved for the name
	Clock   int64 // of the server, in µs since the Unix epoch
	State   State // of a busy name
}

// State is the holder of a name, as a node shows it.
type State struct {
	driver.State
	Owner string
}

const (
	// maxCalls is how many calls a node may have under way that does not answer for fullAfter. Then
	// no Acquire is sent to it. ⚑ A node that hangs costs no more.
	maxCalls  = 64
	fullAfter = 500 * time.Millisecond
	// silentAfter is how long a call of a node has no answer before the node is silent.
	silentAfter = 100 * time.Millisecond
)

// node is a Node as the driver uses it.
type node struct {
	Node
	q      *quorum
	index  int
	calls  atomic.Int32 // under way
	failed atomic.Bool  // the last call had no answer
	// lastAnswer is when the node last answered, or when a call began while none was under way. It
	// counts from the beginning of the driver.
	lastAnswer atomic.Int64
	clock      atomic.Int64 // of its server when the driver began, in µs; 0: not known
	owed       owedReleases
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

// leave counts the end of a call. answered says that the node has answered, with its clock.
func (n *node) leave(clock int64, answered bool) {
	n.failed.Store(!answered)
	if answered {
		now := n.q.sinceBegan()
		n.lastAnswer.Store(int64(now))
		n.clock.Store(clock - now.Microseconds())
	}
	n.calls.Add(-1)
}

// young reports whether the server may have started after a grant that has not ended. took is the
// time of the call that the node has just answered.
//
// ⚑ Up is asked after the call: the server may have restarted before.
func (n *node) young(took time.Duration) bool {
	return n.q.restartDelay > 0 && n.Up()-took < n.q.restartDelay
}
