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
	// maxInFlight is how many round trips to a node are under way before requests wait for each other.
	// The node works at one, and the client makes or reads the other.
	maxInFlight = 2
	// sharePatience is how long after the start of the last round trip the next request waits for another
	// one to end. A node that takes longer is far away, or stuck, and a round trip delays no other request.
	sharePatience = 500 * time.Microsecond
	// maxShared bounds the requests of a round trip, so that the first answers do not wait long for the last.
	maxShared = 128
	// leaderGrace is how much longer than its last caller a round trip goes on. A caller then sees the
	// end of its ctx, and no timeout of the connection.
	leaderGrace = 20 * time.Millisecond
)

// exchange sends the requests for one node. With maxInFlight round trips under way, a request waits until
// one ends, or patience ends. Then all pending requests share one pipeline.
//
// ⚑ go-redis may read on after a ctx has ended. So a goroutine makes the round trip, and a caller leaves
// as soon as its own ctx ends. A pending request is then taken back. A round trip goes on, with the values
// of its first ctx and the latest deadline of all, so a departing caller costs others no answer.
type exchange struct {
	client   redis.UniversalClient
	own      bool // the client is that of the exchange
	patience time.Duration
	timer    *time.Timer              // ends the patience
	start    func(leader func()) bool // starts a goroutine, see Transport.start

	mu       sync.Mutex
	underway int
	latest   time.Time  // when the last round trip began
	pending  []*request // in the order of arrival
}

func newExchange(client redis.UniversalClient, own bool, start func(func()) bool) *exchange {
	x := &exchange{client: client, own: own, patience: sharePatience, start: start}
	x.timer = time.AfterFunc(time.Hour, x.endPatience)
	x.timer.Stop()
	return x
}

// request has the commands of a caller. They take effect in their order.
type request struct {
	ctx  context.Context
	cmds []redis.Cmder
	// answered is closed when the round trip is done with the commands.
	answered chan struct{}
}

// send sends the commands in one round trip. Each has its own error. From a script on that the node does
// not know, it sends them again, with the whole script. If send fails, ctx has ended before the answers,
// and the commands must not be read.
func (x *exchange) send(ctx context.Context, cmds ...redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	r := &request{ctx, cmds, make(chan struct{})}
	x.mu.Lock()
	x.pending = append(x.pending, r)
	x.leadLocked()
	x.mu.Unlock()
	select {
	case <-r.answered:
		return nil
	case <-ctx.Done():
		return x.leave(r)
	}
}

// leave ends the wait for a request whose ctx has ended. Answers that came in the same moment count.
func (x *exchange) leave(r *request) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.pending, r); i >= 0 {
		x.pending = slices.Delete(x.pending, i, i+1)
		return notSent(r.ctx.Err())
	}
	select {
	case <-r.answered:
		return nil
	default:
		return r.ctx.Err()
	}
}

// endPatience begins another round trip for pending requests when patience ends.
func (x *exchange) endPatience() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leadLocked()
}

// leadLocked begins the next round trip, if it may begin.
func (x *exchange) leadLocked() {
	for len(x.pending) > 0 {
		if x.underway >= maxInFlight {
			if wait := time.Until(x.latest.Add(x.patience)); wait > 0 {
				x.timer.Reset(wait)
				return
			}
		}
		n := min(len(x.pending), maxShared)
		requests := slices.Clone(x.pending[:n])
		x.pending = slices.Delete(x.pending, 0, n)
		if !x.start(func() { x.lead(requests) }) {
			for _, r := range requests {
				setErr(r.cmds, notSent(redis.ErrClosed))
				close(r.answered)
			}
			continue
		}
		x.underway++
		x.latest = time.Now()
	}
}

// lead makes one round trip of the requests. Scripts that the node does not know are sent again, whole.
func (x *exchange) lead(requests []*request) {
	var contexts []context.Context
	var cmds, again []redis.Cmder
	for _, r := range requests {
		contexts = append(contexts, r.ctx)
		cmds = append(cmds, r.cmds...)
	}
	x.roundTrip(contexts, cmds)
	for _, r := range requests {
		again = append(again, wholeFrom(r.cmds)...)
	}
	if len(again) > 0 {
		x.roundTrip(contexts, again)
	}
	for _, r := range requests {
		close(r.answered)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.underway--
	x.leadLocked()
}

// roundTrip sends the commands, for the callers that have the contexts. A panic of a callback of the
// application is the error of the commands: its goroutine is not that of a caller.
func (x *exchange) roundTrip(callers []context.Context, cmds []redis.Cmder) {
	ctx, cancel := lasting(callers)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			setErr(cmds, fmt.Errorf("%w: %v\n\n%s", errBroken, v, debug.Stack()))
		}
	}()
	if len(cmds) == 1 {
		_ = x.client.Process(ctx, cmds[0])
		return
	}
	pipe := x.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		setErr(cmds, err) // ⚑ the error is a hook's, or a reply to the set-up of the connection
	}
}

func setErr(cmds []redis.Cmder, err error) {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
}

// lasting returns a context for commands that several callers wait for. It has the values of the first
// ctx, and ends after the latest deadline of all.
func lasting(callers []context.Context) (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(callers[0])
	var last time.Time
	for _, caller := range callers {
		deadline, ok := caller.Deadline()
		if !ok {
			return ctx, func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(ctx, last.Add(leaderGrace))
}

var errBroken = errors.New("a hook of the Redis client panicked: correct the hook")
