package redislock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxInFlight is how many exchanges are under way with a node before calls wait for each other.
	// The node works at one, and the client makes or reads the other.
	maxInFlight = 2
	// sharePatience is how long after the start of the last exchange the next one waits for another to
	// end. A node that takes longer is far away, or stuck, and a round trip delays no other call.
	sharePatience = 500 * time.Microsecond
	// maxShared bounds the calls of an exchange, so that the first answers do not wait long for the last.
	maxShared = 128
	// leaderGrace is how much longer than its last caller an exchange goes on. A caller then sees the
	// end of its ctx, and no timeout of the connection.
	leaderGrace = 20 * time.Millisecond
)

// sharing is a client whose script calls share round trips. All else it does as the client does.
type sharing struct {
	redis.UniversalClient
	one     *exchange      // if there is one node
	nodes   sync.Map       // of a Cluster: *exchange by the address of the node
	leading sync.WaitGroup // the leaders of all exchanges
}

func newSharing(client redis.UniversalClient) *sharing {
	s := &sharing{UniversalClient: client}
	if _, ok := client.(*redis.Client); ok {
		s.one = newExchange(client, &s.leading)
	}
	return s
}

// exchange returns where calls for the node of key meet, or nil if that is not known.
func (s *sharing) exchange(ctx context.Context, key string) *exchange {
	cluster, ok := s.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return s.one
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil
	}
	addr := node.Options().Addr
	x, ok := s.nodes.Load(addr)
	if !ok { // its pipelines go over the Cluster's client, which follows keys that have moved
		x, _ = s.nodes.LoadOrStore(addr, newExchange(cluster, &s.leading))
	}
	return x.(*exchange)
}

// exchange sends the calls for one node. A goroutine of the exchange, a leader, sends all pending calls
// as one pipeline, or a single call as a plain command, until no call is pending. With maxInFlight
// leaders, a call waits until a leader is free, or patience ends.
//
// ⚑ A client of Redis reads on after its context has ended, but a caller leaves as soon as its own ctx
// ends. A pending call is then taken back. The outcome of a sent call is unknown. The pipeline has the
// values of its first ctx and the latest deadline of all, so a departing caller costs others no answer.
type exchange struct {
	client   redis.UniversalClient
	patience time.Duration
	timer    *time.Timer     // ends the patience
	leading  *sync.WaitGroup // the leaders

	mu       sync.Mutex
	underway int       // leaders
	latest   time.Time // when the last exchange began
	pending  []*call   // in the order of arrival
}

func newExchange(client redis.UniversalClient, leading *sync.WaitGroup) *exchange {
	x := &exchange{client: client, patience: sharePatience, leading: leading}
	x.timer = time.AfterFunc(time.Hour, x.endPatience)
	x.timer.Stop()
	return x
}

// call is a command that waits for an exchange, or in one.
type call struct {
	ctx  context.Context
	cmd  *Call
	left bool // guarded by the exchange's mu
	// answered gets the panic of a hook, or nil, when the leader is done with the command.
	answered chan any
}

func (c *call) result(panicked any) error {
	if panicked != nil {
		panic(panicked)
	}
	return c.cmd.Failure()
}

// process makes a call and returns its error, as soon as ctx ends. After an error a leader may have the
// command still.
func (x *exchange) process(ctx context.Context, cmd *Call) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	c := &call{ctx: ctx, cmd: cmd, answered: make(chan any, 1)}
	x.mu.Lock()
	x.pending = append(x.pending, c)
	switch {
	case x.underway < maxInFlight:
		x.beginLocked()
	case len(x.pending) == 1:
		x.timer.Reset(time.Until(x.latest.Add(x.patience)))
	}
	x.mu.Unlock()
	select {
	case panicked := <-c.answered:
		return c.result(panicked)
	case <-ctx.Done():
		return x.leave(c)
	}
}

// leave ends the wait for a call whose ctx has ended. An answer that came in the same moment counts.
func (x *exchange) leave(c *call) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.pending, c); i >= 0 {
		x.pending = slices.Delete(x.pending, i, i+1)
		return notSent(c.ctx.Err())
	}
	select {
	case panicked := <-c.answered:
		return c.result(panicked)
	default:
		c.left = true
		return c.ctx.Err()
	}
}

// endPatience begins another exchange for pending calls when patience ends.
func (x *exchange) endPatience() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pending) > 0 && time.Since(x.latest) >= x.patience {
		x.beginLocked()
	}
	if len(x.pending) > 0 {
		x.timer.Reset(time.Until(x.latest.Add(x.patience)))
	}
}

func (x *exchange) beginLocked() {
	x.underway++
	calls := x.takeLocked()
	x.leading.Go(func() { x.lead(calls) })
}

func (x *exchange) takeLocked() []*call {
	n := min(len(x.pending), maxShared)
	calls := slices.Clone(x.pending[:n])
	x.pending = slices.Delete(x.pending, 0, n)
	x.latest = time.Now()
	return calls
}

// lead makes exchanges until no call is pending.
func (x *exchange) lead(calls []*call) {
	defer func() { // a hook may end the goroutine
		x.mu.Lock()
		defer x.mu.Unlock()
		x.underway--
	}()
	for len(calls) > 0 {
		x.send(calls)
		x.mu.Lock()
		calls = nil
		if x.underway <= maxInFlight && len(x.pending) > 0 {
			calls = x.takeLocked()
		}
		x.mu.Unlock()
	}
}

// send makes an exchange of the calls. The panic of a hook reaches each caller. If all have left, it
// ends the process.
func (x *exchange) send(calls []*call) {
	ctx, cancel := context.WithoutCancel(calls[0].ctx), func() {}
	if until, ok := lastDeadline(calls); ok {
		ctx, cancel = context.WithDeadline(ctx, until.Add(leaderGrace))
	}
	defer cancel()
	broken := true
	defer func() {
		var panicked any
		if v := recover(); v != nil {
			panicked = fmt.Errorf("%w: %v\n\n%s", errBroken, v, debug.Stack())
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		left := true
		for _, c := range calls {
			if broken {
				c.cmd.SetErr(errBroken)
			}
			left = left && c.left
			c.answered <- panicked
		}
		if panicked != nil && left {
			panic(panicked)
		}
	}()
	if len(calls) == 1 {
		_ = x.client.Process(ctx, calls[0].cmd)
	} else {
		cmds := make([]redis.Cmder, len(calls))
		for i, c := range calls {
			cmds[i] = c.cmd
		}
		Pipelined(ctx, x.client, cmds...)
	}
	broken = false
}

// lastDeadline returns the latest deadline of the calls. It reports false if a call has none.
func lastDeadline(calls []*call) (last time.Time, ok bool) {
	for _, c := range calls {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			return last, false
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return last, true
}

var errBroken = errors.New("redislock: a hook of the Redis client panicked, or ended its goroutine: correct the hook")
