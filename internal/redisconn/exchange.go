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
	// answerGrace is how much longer than its last caller a round trip goes on. A caller then sees the
	// end of its ctx, and no timeout of the connection.
	answerGrace = 20 * time.Millisecond
)

// exchange sends the requests for one node. A lone request goes out in the goroutine of its caller. With
// maxInFlight round trips under way, a request waits until one ends, or patience ends. A goroutine then
// sends all pending requests as one pipeline.
//
// ⚑ A caller leaves as soon as its own ctx ends. A pending request is then taken back, and the connection
// of a lone one is closed. A shared round trip goes on, with the values of its first ctx and the latest
// deadline of all, so a departing caller costs others no answer.
//
// Without connections of its own, an exchange uses the application's client. Goroutines send all requests
// then, because a caller cannot close the connection.
type exchange struct {
	transport *Transport
	options   *redis.Options // of its own connections; nil: none of its own
	patience  time.Duration
	timer     *time.Timer // ends the patience

	mu       sync.Mutex
	idle     []*conn // the last one was used last
	inFlight int
	latest   time.Time  // when the last round trip began
	pending  []*request // in the order of arrival
}

func newExchange(t *Transport, options *redis.Options) *exchange {
	x := &exchange{transport: t, options: options, patience: sharePatience}
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
	alone := x.options != nil && x.inFlight < min(maxInFlight, x.options.PoolSize) && len(x.pending) == 0
	if alone && x.startLocked() {
		x.mu.Unlock()
		x.makeTrip(r)
		return nil
	}
	x.pending = append(x.pending, r)
	x.sendPendingLocked()
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
	x.sendPendingLocked()
}

// sendPendingLocked begins the next round trip, if it may begin.
func (x *exchange) sendPendingLocked() {
	for len(x.pending) > 0 {
		if x.options != nil && x.inFlight >= x.options.PoolSize {
			return // until another round trip ends
		}
		if x.inFlight >= maxInFlight {
			if wait := time.Until(x.latest.Add(x.patience)); wait > 0 {
				x.timer.Reset(wait)
				return
			}
		}
		n := min(len(x.pending), maxShared)
		requests := slices.Clone(x.pending[:n])
		x.pending = slices.Delete(x.pending, 0, n)
		if x.startLocked() {
			go x.makeTrip(requests...)
			continue
		}
		for _, r := range requests {
			setErr(r.cmds, notSent(redis.ErrClosed))
			close(r.answered)
		}
	}
}

// startLocked counts another round trip, which makeTrip ends. It reports false after Transport.Close.
func (x *exchange) startLocked() bool {
	if !x.transport.start() {
		return false
	}
	x.inFlight++
	x.latest = time.Now()
	return true
}

// makeTrip makes one round trip of the requests. Scripts that the node does not know are sent again, whole.
func (x *exchange) makeTrip(requests ...*request) {
	defer x.transport.running.Done()
	ctx := requests[0].ctx
	if len(requests) > 1 || x.options == nil {
		var cancel context.CancelFunc
		ctx, cancel = lasting(requests)
		defer cancel()
	}
	var cmds, again []redis.Cmder
	for _, r := range requests {
		cmds = append(cmds, r.cmds...)
	}
	x.roundTrip(ctx, cmds)
	for _, r := range requests {
		again = append(again, wholeFrom(r.cmds)...)
	}
	if len(again) > 0 {
		x.roundTrip(ctx, again)
	}
	for _, r := range requests {
		close(r.answered)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inFlight--
	x.sendPendingLocked()
}

// roundTrip sends the commands. A panic of a callback of the application is their error. If nodes of a
// Cluster may have changed roles, its client reloads them.
func (x *exchange) roundTrip(ctx context.Context, cmds []redis.Cmder) {
	client := x.transport.client
	if x.options != nil {
		c := x.take()
		client = c.client
		stop := context.AfterFunc(ctx, c.leave)
		defer func() { x.put(c, stop() && !slices.ContainsFunc(cmds, isUnanswered)) }()
	}
	exec(ctx, client, cmds)
	for _, cmd := range cmds {
		if ctx.Err() != nil && isUnanswered(cmd) {
			cmd.SetErr(ctx.Err())
		}
		reload(x.transport.client, cmd.Err())
	}
}

func isUnanswered(cmd redis.Cmder) bool { return cmd.Err() != nil && !IsReply(cmd.Err()) }

func (x *exchange) take() *conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := len(x.idle) - 1
	if last < 0 {
		return newConn(x.options)
	}
	c := x.idle[last]
	x.idle = x.idle[:last]
	return c
}

// put keeps a healthy connection. The first failure closes the connection.
func (x *exchange) put(c *conn, healthy bool) {
	if !healthy {
		_ = c.client.Close()
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.idle = append(x.idle, c)
}

// exec makes one round trip of the commands. Each has its own error.
func exec(ctx context.Context, client redis.UniversalClient, cmds []redis.Cmder) {
	defer func() {
		if v := recover(); v != nil {
			setErr(cmds, fmt.Errorf("%w: %v\n\n%s", errBroken, v, debug.Stack()))
		}
	}()
	if len(cmds) == 1 {
		_ = client.Process(ctx, cmds[0])
		return
	}
	pipe := client.Pipeline()
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

// lasting returns a context for requests that several callers wait for. It has the values of the first
// ctx, and ends after the latest deadline of all.
func lasting(requests []*request) (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(requests[0].ctx)
	var last time.Time
	for _, r := range requests {
		deadline, ok := r.ctx.Deadline()
		if !ok {
			return ctx, func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(ctx, last.Add(answerGrace))
}

var errBroken = errors.New("a hook of the Redis client panicked: correct the hook")
