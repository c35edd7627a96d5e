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

// nodeQueue has the requests for one node, and sends them. A lone request goes out in the goroutine of its
// caller. With maxInFlight round trips under way, a request waits until one ends, or patience ends. A
// goroutine then sends all pending requests as one pipeline.
//
// ⚑ A caller leaves as soon as its own ctx ends. A pending request is then taken back, and the connection
// of a lone one is closed. A shared round trip goes on, with the values of its first ctx and the latest
// deadline of all, so a departing caller costs others no answer.
//
// Without connections of its own, a queue uses the application's client. Goroutines send all requests
// then, because a caller cannot close the connection.
type nodeQueue struct {
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

func newNodeQueue(t *Transport, options *redis.Options) *nodeQueue {
	q := &nodeQueue{transport: t, options: options, patience: sharePatience}
	q.timer = time.AfterFunc(time.Hour, q.endPatience)
	q.timer.Stop()
	return q
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
func (q *nodeQueue) send(ctx context.Context, cmds ...redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	r := &request{ctx, cmds, make(chan struct{})}
	q.mu.Lock()
	alone := q.options != nil && q.inFlight < min(maxInFlight, q.options.PoolSize) && len(q.pending) == 0
	if alone && q.startLocked() {
		q.mu.Unlock()
		q.serve(r)
		return nil
	}
	q.pending = append(q.pending, r)
	q.sendPendingLocked()
	q.mu.Unlock()
	select {
	case <-r.answered:
		return nil
	case <-ctx.Done():
		return q.abandon(r)
	}
}

// abandon ends the wait for a request whose ctx has ended. Answers that came in the same moment count.
func (q *nodeQueue) abandon(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.pending, r); i >= 0 {
		q.pending = slices.Delete(q.pending, i, i+1)
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
func (q *nodeQueue) endPatience() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sendPendingLocked()
}

// sendPendingLocked begins the next round trip, if it may begin.
func (q *nodeQueue) sendPendingLocked() {
	for len(q.pending) > 0 {
		if q.options != nil && q.inFlight >= q.options.PoolSize {
			return // until another round trip ends
		}
		if q.inFlight >= maxInFlight {
			if wait := time.Until(q.latest.Add(q.patience)); wait > 0 {
				q.timer.Reset(wait)
				return
			}
		}
		n := min(len(q.pending), maxShared)
		requests := slices.Clone(q.pending[:n])
		q.pending = slices.Delete(q.pending, 0, n)
		if q.startLocked() {
			go q.serve(requests...)
			continue
		}
		for _, r := range requests {
			setErr(r.cmds, notSent(redis.ErrClosed))
			close(r.answered)
		}
	}
}

// startLocked counts another round trip, which serve ends. It reports false after Transport.Close.
func (q *nodeQueue) startLocked() bool {
	if !q.transport.start() {
		return false
	}
	q.inFlight++
	q.latest = time.Now()
	return true
}

// serve answers requests, and then begins the round trip that waits for its end.
func (q *nodeQueue) serve(requests ...*request) {
	defer q.transport.running.Done()
	ctx := requests[0].ctx
	if len(requests) > 1 || q.options == nil {
		var cancel context.CancelFunc
		ctx, cancel = lasting(requests)
		defer cancel()
	}
	q.answer(ctx, requests)
	for _, r := range requests {
		close(r.answered)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inFlight--
	q.sendPendingLocked()
}

// answer makes a round trip of the requests, and another one of the scripts that the node does not know.
func (q *nodeQueue) answer(ctx context.Context, requests []*request) {
	var cmds, again []redis.Cmder
	for _, r := range requests {
		cmds = append(cmds, r.cmds...)
	}
	q.roundTrip(ctx, cmds)
	for _, r := range requests {
		again = append(again, wholeFrom(r.cmds)...)
	}
	if len(again) > 0 {
		q.roundTrip(ctx, again)
	}
}

// roundTrip sends the commands over a connection. If nodes of a Cluster may have changed roles, its client
// reloads them.
func (q *nodeQueue) roundTrip(ctx context.Context, cmds []redis.Cmder) {
	client := q.transport.client
	if q.options != nil {
		c := q.take()
		client = c.client
		stop := context.AfterFunc(ctx, c.closeWire)
		defer func() { q.put(c, stop() && !slices.ContainsFunc(cmds, isUnanswered)) }()
	}
	exec(ctx, client, cmds)
	for _, cmd := range cmds {
		if ctx.Err() != nil && isUnanswered(cmd) {
			cmd.SetErr(ctx.Err())
		}
		reload(q.transport.client, cmd.Err())
	}
}

func isUnanswered(cmd redis.Cmder) bool { return cmd.Err() != nil && !IsReply(cmd.Err()) }

func (q *nodeQueue) take() *conn {
	q.mu.Lock()
	defer q.mu.Unlock()
	last := len(q.idle) - 1
	if last < 0 {
		return newConn(q.options)
	}
	c := q.idle[last]
	q.idle = q.idle[:last]
	return c
}

// put keeps a healthy connection. The first failure closes the connection.
func (q *nodeQueue) put(c *conn, healthy bool) {
	if !healthy {
		_ = c.client.Close()
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle = append(q.idle, c)
}

// exec makes one round trip of the commands. Each has its own error. A panic of a callback of the application
// is the error of all.
func exec(ctx context.Context, client redis.UniversalClient, cmds []redis.Cmder) {
	defer func() {
		if v := recover(); v != nil {
			setErr(cmds, fmt.Errorf("%w: %v\n\n%s", errPanicked, v, debug.Stack()))
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

var errPanicked = errors.New("a hook of the Redis client panicked: correct the hook")
