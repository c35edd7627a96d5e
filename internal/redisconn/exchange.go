package redisconn

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
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
	// leaderGrace is how much longer than its last caller a shared exchange goes on. A caller then sees the
	// end of its ctx, and no timeout of the connection.
	leaderGrace = 20 * time.Millisecond
)

// exchange sends the calls for one node. A lone call goes out in the goroutine of its caller. With
// maxInFlight exchanges under way, a call waits until one ends, or patience ends. A goroutine of the
// exchange, a leader, then sends all pending calls as one pipeline.
//
// ⚑ A caller leaves as soon as its own ctx ends. A pending call is then taken back, and the connection of
// a lone call is closed. A shared pipeline goes on, with the values of its first ctx and the latest
// deadline of all, so a departing caller costs others no answer.
//
// Without connections of its own, an exchange uses the application's client. Goroutines send all calls
// then, because a caller cannot close the connection.
type exchange struct {
	client   redis.UniversalClient
	conns    *conns // nil: none of its own
	patience time.Duration
	timer    *time.Timer // ends the patience
	leaders  *leaders

	mu       sync.Mutex
	underway int
	latest   time.Time // when the last exchange began
	pending  []*call   // in the order of arrival
}

// newExchange makes an exchange whose connections have the given options. Nil options mean the client.
func newExchange(
	client redis.UniversalClient, options *redis.Options, tune func(*redis.Options), leaders *leaders,
) *exchange {
	x := &exchange{client: client, patience: sharePatience, leaders: leaders}
	if options != nil {
		x.conns = newConns(options)
		if tune != nil {
			tune(&x.conns.options)
		}
	}
	x.timer = time.AfterFunc(time.Hour, x.endPatience)
	x.timer.Stop()
	return x
}

// close closes the connections of the exchange.
func (x *exchange) close() {
	if x.conns != nil {
		x.conns.close()
	}
}

// call waits for an exchange, or is in one.
type call struct {
	ctx context.Context
	cmd *Call
	// answered is closed when the leader is done with the command.
	answered chan struct{}
}

// send makes a call and returns its error. After an error a leader may still write to the call.
func (x *exchange) send(ctx context.Context, cmd *Call) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	x.mu.Lock()
	if x.conns != nil && x.underway < maxInFlight && len(x.pending) == 0 {
		x.startLocked()
		x.mu.Unlock()
		defer x.end()
		err := x.sendAlone(ctx, cmd)
		switch {
		case err == nil:
			return cmd.Failure()
		case !cmd.sent.written:
			return notSent(err)
		}
		return err
	}
	c := &call{ctx, cmd, make(chan struct{})}
	x.pending = append(x.pending, c)
	x.leadLocked()
	x.mu.Unlock()
	select {
	case <-c.answered:
		return cmd.Failure()
	case <-ctx.Done():
		return x.leave(c)
	}
}

// sendAlone sends the commands in an exchange of their own. From a script on that the node does not know, it
// sends them again, with the whole script. If it fails, ctx has ended before the answers, or the transport
// is closed. go-redis may then still write to the commands.
func (x *exchange) sendAlone(ctx context.Context, cmds ...redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	if err := x.roundTrip(ctx, cmds); err != nil {
		return err
	}
	unknown := wholeFrom(cmds)
	if len(unknown) == 0 {
		return nil
	}
	return WithEarlierCopy(len(unknown) < len(cmds), x.roundTrip(ctx, unknown))
}

// roundTrip sends the commands in the goroutine of the caller, if the exchange has connections.
func (x *exchange) roundTrip(ctx context.Context, cmds []redis.Cmder) error {
	if x.conns == nil {
		return x.roundTripDetached(ctx, cmds)
	}
	err := x.conns.exec(ctx, cmds)
	if err == nil && slices.ContainsFunc(cmds, isUnanswered) {
		err = ctx.Err()
	}
	return err
}

// roundTripDetached sends the commands in another goroutine, which goes on if ctx ends.
func (x *exchange) roundTripDetached(ctx context.Context, cmds []redis.Cmder) error {
	answered := make(chan struct{})
	if !x.leaders.start(func() {
		defer close(answered)
		x.roundTripFor(cmds, ctx)
	}) {
		return notSent(redis.ErrClosed)
	}
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// roundTripFor sends the commands, for the callers that have the contexts.
func (x *exchange) roundTripFor(cmds []redis.Cmder, callers ...context.Context) {
	ctx, cancel := lasting(callers...)
	defer cancel()
	guard(cmds, func() error {
		if x.conns != nil {
			return x.conns.exec(ctx, cmds)
		}
		exec(ctx, x.client, cmds)
		return nil
	})
}

func isUnanswered(cmd redis.Cmder) bool { return cmd.Err() != nil && !IsReply(cmd.Err()) }

// leave ends the wait for a call whose ctx has ended. An answer that came in the same moment counts.
func (x *exchange) leave(c *call) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.pending, c); i >= 0 {
		x.pending = slices.Delete(x.pending, i, i+1)
		return notSent(c.ctx.Err())
	}
	select {
	case <-c.answered:
		return c.cmd.Failure()
	default:
		return c.ctx.Err()
	}
}

func (x *exchange) startLocked() {
	x.underway++
	x.latest = time.Now()
}

// end ends an exchange. Pending calls have the next one.
func (x *exchange) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.underway--
	x.leadLocked()
}

// endPatience begins another exchange for pending calls when patience ends.
func (x *exchange) endPatience() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leadLocked()
}

// leadLocked begins the next exchange, if it may begin.
func (x *exchange) leadLocked() {
	for len(x.pending) > 0 {
		if x.underway >= maxInFlight {
			if x.conns != nil && x.underway >= cap(x.conns.slots) {
				return // until another exchange ends
			}
			if wait := time.Until(x.latest.Add(x.patience)); wait > 0 {
				x.timer.Reset(wait)
				return
			}
		}
		n := min(len(x.pending), maxShared)
		calls := slices.Clone(x.pending[:n])
		x.pending = slices.Delete(x.pending, 0, n)
		if x.leaders.start(func() {
			x.sendTogether(calls)
			x.end()
		}) {
			x.startLocked()
			continue
		}
		for _, c := range calls {
			c.cmd.SetErr(redis.ErrClosed)
			close(c.answered)
		}
	}
}

// leaders are the goroutines that send calls.
type leaders struct {
	mu      sync.Mutex
	closed  atomic.Bool
	running sync.WaitGroup
}

// start runs f in a goroutine. It reports false after close.
func (l *leaders) start(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return false
	}
	l.running.Go(f)
	return true
}

// close waits for the goroutines. ⚑ A WaitGroup panics if a goroutine starts while the last one ends.
func (l *leaders) close() {
	l.mu.Lock()
	l.closed.Store(true)
	l.mu.Unlock()
	l.running.Wait()
}

// sendTogether makes one exchange of the calls. Scripts that the node does not know are sent again, whole.
func (x *exchange) sendTogether(calls []*call) {
	contexts, cmds := make([]context.Context, len(calls)), make([]redis.Cmder, len(calls))
	for i, c := range calls {
		contexts[i], cmds[i] = c.ctx, c.cmd
	}
	x.roundTripFor(cmds, contexts...)
	var again []redis.Cmder
	for _, c := range calls {
		if isNoScript(c.cmd) {
			again = append(again, c.cmd.Whole())
		}
	}
	if len(again) > 0 {
		x.roundTripFor(again, contexts...)
	}
	for _, c := range calls {
		close(c.answered)
	}
}

// lasting returns a context for commands that several callers wait for. It has the values of the first
// ctx, and ends after the latest deadline of all.
func lasting(contexts ...context.Context) (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(contexts[0])
	var last time.Time
	for _, caller := range contexts {
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

// guard gives the commands the error of f. A panic of a callback of the application is such an error: its
// goroutine is not that of a caller.
func guard(cmds []redis.Cmder, f func() error) {
	var err error
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n\n%s", errBroken, v, debug.Stack())
		}
		for _, cmd := range cmds {
			if err != nil {
				cmd.SetErr(err)
			}
		}
	}()
	err = f()
}

// exec makes one exchange of the commands. Each has its own error.
func exec(ctx context.Context, client redis.UniversalClient, cmds []redis.Cmder) {
	if len(cmds) == 1 {
		_ = client.Process(ctx, cmds[0])
		return
	}
	pipe := client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds { // ⚑ the error is a hook's, or a reply to the set-up of the connection
			cmd.SetErr(err)
		}
	}
}

var errBroken = errors.New("a hook of the Redis client panicked: correct the hook")
