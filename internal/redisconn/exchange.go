package redisconn

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

// call is what one caller sends: it waits for an exchange, or is in one.
type call struct {
	ctx  context.Context
	cmds []redis.Cmder
	left bool // guarded by the exchange's mu
	// answered gets the panic of a hook, or nil, when the leader is done with the commands.
	answered chan any
}

func newCall(ctx context.Context, cmds ...redis.Cmder) *call {
	return &call{ctx: ctx, cmds: cmds, answered: make(chan any, 1)}
}

// process sends a command, which has its own error then. If process fails, ctx has ended before the
// answer, and a leader may still write to the command.
func (x *exchange) process(ctx context.Context, cmd redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	c := newCall(ctx, cmd)
	x.mu.Lock()
	x.pending = append(x.pending, c)
	switch {
	case x.underway < maxInFlight:
		x.beginLocked()
	case len(x.pending) == 1:
		x.timer.Reset(time.Until(x.latest.Add(x.patience)))
	}
	x.mu.Unlock()
	return x.await(c)
}

// alone is process for commands that do send, in an exchange of their own.
func (x *exchange) alone(ctx context.Context, cmds []redis.Cmder, send func(context.Context)) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	c := newCall(ctx, cmds...)
	x.leading.Go(func() { x.answer([]*call{c}, send) })
	return x.await(c)
}

func (x *exchange) await(c *call) error {
	select {
	case panicked := <-c.answered:
		return answered(panicked)
	case <-c.ctx.Done():
		return x.leave(c)
	}
}

func answered(panicked any) error {
	if panicked != nil {
		panic(panicked)
	}
	return nil
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
		return answered(panicked)
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

// send makes an exchange of the calls.
func (x *exchange) send(calls []*call) {
	cmds := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		cmds[i] = c.cmds[0]
	}
	x.answer(calls, func(ctx context.Context) {
		if len(cmds) == 1 {
			_ = x.client.Process(ctx, cmds[0])
		} else {
			pipelined(ctx, x.client, cmds)
		}
	})
}

// answer sends the calls. The panic of a hook reaches each caller. If all have left, it ends the process.
func (x *exchange) answer(calls []*call, send func(context.Context)) {
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
				for _, cmd := range c.cmds {
					cmd.SetErr(errBroken)
				}
			}
			left = left && c.left
			c.answered <- panicked
		}
		if panicked != nil && left {
			panic(panicked)
		}
	}()
	send(ctx)
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

var errBroken = errors.New("a hook of the Redis client panicked, or ended its goroutine: correct the hook")
