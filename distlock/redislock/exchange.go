package redislock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxAbreast is how many exchanges are under way with a node before calls wait for each other: one that the node works at,
	// and one that is made or read. Two callers never meet.
	maxAbreast = 2
	// sharePatience is how long after the start of the last exchange the next one waits for another to end. A node that takes
	// longer is far away, or stuck, and nobody is to be delayed by another's round trip.
	sharePatience = 500 * time.Microsecond
	// maxShared bounds the calls of an exchange, so that the first answers do not wait long for the last.
	maxShared = 128
	// shareSlack is by how much an exchange may outlast its leader's deadline.
	shareSlack = time.Millisecond
)

// sharing is a client whose script calls share round trips. All else it does as the client does.
type sharing struct {
	redis.UniversalClient
	one   *exchange // if there is one node
	nodes sync.Map  // of a Cluster: *exchange by the node's address, so that no node's calls wait for another's
}

func newSharing(client redis.UniversalClient) *sharing {
	s := &sharing{UniversalClient: client}
	if _, ok := client.(*redis.Client); ok {
		s.one = newExchange(client)
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
		x, _ = s.nodes.LoadOrStore(addr, newExchange(cluster))
	}
	return x.(*exchange)
}

// exchange is where the calls for one node meet. A call that finds fewer than maxAbreast exchanges under way is made at once,
// as a command of its own, in its caller's goroutine. Others wait; when an exchange ends, or patience does, one of them
// leads: it sends all that wait as one pipeline, in its own goroutine, and tells the others when their answers are there.
//
// ⚑ The call that leads is the one with the latest deadline, and the exchange lasts until that: nobody's haste costs another
// the answer, so none is asked for twice. Those with earlier deadlines, or whose ctx is cancelled, leave by themselves: a
// call that was not sent is taken back, of one that was sent the outcome is unknown. What the leader's ctx can do besides
// ending at its deadline stays away from the others: the pipeline has its values, but not its cancellation.
type exchange struct {
	client   redis.UniversalClient
	patience time.Duration

	mu       sync.Mutex
	underway int       // exchanges, also those whose leader was appointed
	latest   time.Time // when the last of them was begun
	pending  []*call   // in the order of their coming; none unless maxAbreast are under way
	idle     sync.Pool // of *call
}

func newExchange(client redis.UniversalClient) *exchange {
	return &exchange{client: client, patience: sharePatience}
}

// call is one that waits for an exchange, or in one.
type call struct {
	cmd      *Call
	deadline time.Time // zero: none
	stage    stage     // guarded by the exchange's mu
	// news comes once while the call is pending, when it is to lead, or once after it was sent, when it is answered.
	news  chan struct{}
	timer *time.Timer
}

type stage int

const (
	callPending stage = iota
	callLeads         // was told to
	callTaken         // the leader has the command
)

// call returns a call with a timer that is stopped. They are used again, by the same exchange: what was made in a bubble of
// testing/synctest must not leave it.
func (x *exchange) call() *call {
	if c, ok := x.idle.Get().(*call); ok {
		return c
	}
	c := &call{news: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	return c
}

// putBack ends a call that nobody else has.
func (x *exchange) putBack(c *call) {
	c.timer.Stop()
	c.cmd = nil
	x.idle.Put(c)
}

// outlasts reports whether the call has more time than until; zero means no end.
func (c *call) outlasts(until time.Time) bool {
	return !until.IsZero() && (c.deadline.IsZero() || c.deadline.After(until))
}

// process makes a call and returns its error. If ctx ends first, the leader of an exchange may have the
// command still, and its outcome is unknown.
func (x *exchange) process(ctx context.Context, cmd *Call) error {
	x.mu.Lock()
	now := time.Now()
	if x.underway < maxAbreast {
		x.underway++
		x.latest = now
		x.mu.Unlock()
		defer x.end()
		_ = x.client.Process(ctx, cmd)
		return cmd.Failure()
	}
	c := x.call()
	c.cmd, c.stage = cmd, callPending
	c.deadline, _ = ctx.Deadline()
	x.pending = append(x.pending, c)
	c.timer.Reset(x.latest.Add(x.patience).Sub(now)) // which may have passed
	x.mu.Unlock()

	for {
		select {
		case <-c.news:
			if c.stage == callTaken {
				x.putBack(c)
				return cmd.Failure()
			}
			if err := ctx.Err(); err != nil {
				return x.leave(c, err)
			}
			x.lead(ctx, c)
			x.putBack(c)
			return cmd.Failure()
		case <-ctx.Done():
			return x.leave(c, ctx.Err())
		case now := <-c.timer.C:
			x.hurry(c, now)
		}
	}
}

// hurry sees to it that a call does not wait for the end of an exchange for longer than patience.
func (x *exchange) hurry(c *call, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.stage != callPending {
		return
	}
	if now.Sub(x.latest) >= x.patience {
		x.appoint(now)
	}
	c.timer.Reset(x.latest.Add(x.patience).Sub(now)) // if it was another that was appointed, that may take some others first
}

// appoint begins an exchange, if calls are pending: it tells the one with the latest deadline to lead.
func (x *exchange) appoint(now time.Time) {
	if len(x.pending) == 0 {
		return
	}
	last := 0
	for i, c := range x.pending {
		if c.outlasts(x.pending[last].deadline) {
			last = i
		}
	}
	leader := x.pending[last]
	x.pending = slices.Delete(x.pending, last, last+1)
	x.underway++
	x.latest = now
	leader.stage = callLeads
	leader.news <- struct{}{}
}

// end ends an exchange, or what would have become one.
func (x *exchange) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.underway--
	if x.underway < maxAbreast {
		x.appoint(time.Now())
	}
}

// leave takes a call back whose caller leaves for the given reason. If the answer came in the same
// moment, the answer counts.
func (x *exchange) leave(c *call, reason error) error {
	x.mu.Lock()
	stage := c.stage
	if stage == callPending {
		i := slices.Index(x.pending, c)
		x.pending = slices.Delete(x.pending, i, i+1)
	}
	x.mu.Unlock()
	if stage == callLeads {
		x.end()
	}
	if stage == callTaken {
		select {
		case <-c.news:
			reason = c.cmd.Failure()
			x.putBack(c)
		default: // the leader has the command still
		}
		return reason
	}
	select {
	case <-c.news: // to lead
	default:
	}
	x.putBack(c)
	return notSent(reason)
}

// lead makes an exchange of the calls that are pending, and of c.
func (x *exchange) lead(ctx context.Context, c *call) {
	members := []*call{c}
	until, last := c.deadline, c.deadline
	if !until.IsZero() {
		last = until.Add(shareSlack)
	}
	x.mu.Lock()
	x.latest = time.Now()
	x.pending = slices.DeleteFunc(x.pending, func(other *call) bool {
		if len(members) == maxShared || other.outlasts(last) {
			return false
		}
		if other.outlasts(until) {
			until = other.deadline
		}
		other.stage = callTaken
		members = append(members, other)
		return true
	})
	x.mu.Unlock()
	if len(members) == 1 {
		defer x.end()
		_ = x.client.Process(ctx, c.cmd)
		return
	}

	broken := true // by a hook that panics
	defer func() {
		for _, other := range members[1:] {
			if broken {
				other.cmd.SetErr(errBroken)
			}
			other.news <- struct{}{}
		}
		x.end()
	}()
	cmds := make([]redis.Cmder, len(members))
	for i, other := range members {
		cmds[i] = other.cmd
	}
	ctx = context.WithoutCancel(ctx)
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	Pipelined(ctx, x.client, cmds...)
	broken = false
}

var errBroken = errors.New("redislock: a hook of the Redis client panicked in a request that several calls shared: correct the hook")
