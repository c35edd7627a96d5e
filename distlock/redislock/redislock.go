package redislock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// New makes a Locker over client, which stays the caller's: closing the Locker does not close it. Nil opts mean the
// defaults. It does no I/O; a nil client, a kind of client that cannot keep a lock, and options out of range are refused
// with distlock.ErrInvalidOption.
//
// Extends and renewals go over a second client, made with the options of the first, so that a pool without a free
// connection does not starve them; behind Sentinels, only when there is none. With a type of client that is neither *redis.Client nor *redis.ClusterClient they share its pool.
func New(client redis.UniversalClient, opts *distlock.Options) (*distlock.Locker, error) {
	d, err := NewDriver(client)
	if err != nil {
		return nil, err
	}
	locker, err := distlock.New(d, opts)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return locker, nil
}

// NewDriver makes a driver over client, which stays the caller's. Close it, or the Locker that is given it, to close the
// second client, see New.
func NewDriver(client redis.UniversalClient) (driver.Driver, error) {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: the Redis client is nil: make one with redis.NewClient", distlock.ErrInvalidOption)
	}
	if _, ok := client.(*redis.Ring); ok {
		return nil, fmt.Errorf("%w: a redis.Ring moves a name to another node when its node is down, and two would hold "+
			"one lock: use redis.NewClient", distlock.ErrInvalidOption)
	}
	return newService(client), nil
}

func newService(client redis.UniversalClient) *service {
	s := &service{client: client, shared: redisconn.New(client), wakes: newWakes(client)}
	s.room = make(chan struct{}, renewalConns/2)
	if s.ownClient = renewalClient(client); s.ownClient != nil {
		s.own = redisconn.New(s.ownClient)
	}
	return s
}

// service is a driver.Driver.
type service struct {
	client redis.UniversalClient
	// ownsClient says that Close also closes the client.
	ownsClient bool
	shared     *redisconn.Transport  // over the client
	own        *redisconn.Transport  // over ownClient
	ownClient  redis.UniversalClient // see renewalClient; may be nil
	// room bounds what else goes over own beside renewals: clean-ups, and releases that find the caller's pool used up. A
	// lease that is being released is not renewed any more, so it must not wait for a connection.
	room  chan struct{}
	wakes *wakes
	// payloads keeps the last payload without metadata: a Locker's holder is always the same.
	payloads atomic.Pointer[encoded]
}

func (s *service) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "redis", Shared: true, Queues: true, FenceBlock: driver.FenceBlock}
}

func (s *service) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	keys := keysOf(req.Name)
	args := []any{req.Owner, req.TTL.Milliseconds(), 0, s.payload(req.Holder, req.Metadata)}
	if req.Alive > 0 {
		args = append(args, 0, req.Alive.Milliseconds(), req.Seq, req.Ticket, s.wakes.id)
	}
	return s.acquire(ctx, append(keys.all(), keys.void(req.Owner)), args)
}

func (s *service) acquire(ctx context.Context, keys []string, args []any) (driver.AcquireReply, error) {
	cmd, replayed := acquireScript.Run(ctx, s.shared, keys, args...)
	words, err := cmd.Slice()
	if err != nil {
		return driver.AcquireReply{}, s.failed(err)
	}
	reply, err := parseAcquire(words)
	reply.Replayed = replayed
	return reply, redisconn.After(replayed, err)
}

func (s *service) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	keys := keysOf(req.Name)
	reply, err := s.acquire(ctx, append(keys.all(), keys.void(req.Owner)), []any{req.Owner, 0, req.Floor, "", 1})
	if err != nil || reply.Outcome != driver.Granted {
		return driver.RaiseReply{}, err
	}
	return driver.RaiseReply{Held: true, Fence: reply.Fence, FenceEnd: reply.FenceEnd}, nil
}

func (s *service) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	todo := make([]int, len(reqs))
	for i := range todo {
		todo[i] = i
	}
	for whole := false; len(todo) > 0; whole = true {
		todo = s.extend(ctx, reqs, replies, todo, whole)
	}
	return replies
}

// extend sends the requests that todo lists, in one exchange, and returns those that failed for want of the script. If the
// first is sent whole, its server knows the script by the second.
func (s *service) extend(ctx context.Context, reqs []driver.ExtendRequest, replies []driver.ExtendReply, todo []int, whole bool) (unknown []int) {
	cmds := make([]redis.Cmder, len(todo))
	for n, i := range todo {
		exact := "0"
		if reqs[i].Exact {
			exact = "1"
		}
		cmds[n] = extendScript.Call(ctx, whole && n == 0, []string{keysOf(reqs[i].Name).lock()},
			reqs[i].Owner, reqs[i].TTL.Milliseconds(), exact)
	}
	if err := s.extends().Pipelined(ctx, cmds...); err != nil {
		for _, i := range todo {
			replies[i] = driver.ExtendReply{Err: s.failed(err)}
		}
		return nil
	}
	for n, i := range todo {
		cmd := cmds[n].(*redisconn.Call)
		held, err := cmd.Int()
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, i)
		case cmd.Err() != nil:
			replies[i] = driver.ExtendReply{Err: s.failed(cmd.Failure())}
		case err != nil:
			replies[i] = driver.ExtendReply{Err: errReply}
		default:
			replies[i] = driver.ExtendReply{Held: held == 1}
		}
	}
	return unknown
}

func (s *service) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	of := keysOf(req.Name)
	keys := of.all()
	if req.Tombstone > 0 { // an absent key makes a Cluster reject the script while the slot moves
		keys = append(keys, of.void(req.Owner))
	}
	ended, replayed, err := s.release(ctx, keys, req)
	if err != nil {
		return driver.ReleaseReply{}, s.failed(err)
	}
	return driver.ReleaseReply{Released: ended == 1, Replayed: replayed}, nil
}

// release chooses the client.
func (s *service) release(ctx context.Context, keys []string, req driver.ReleaseRequest) (ended int, replayed bool, err error) {
	lost := false
	if s.own != nil && (req.Tombstone > 0 || s.shared.UsedUp(keys[0])) {
		select {
		case s.room <- struct{}{}:
			ended, replayed, err = releaseOver(ctx, s.own, keys, req)
			<-s.room
			if err == nil || redisconn.IsReply(err) || ctx.Err() != nil {
				return ended, replayed, err
			}
			// Its few connections can all be broken while the caller's are well.
			lost = driver.MayHaveEffect(err)
		default:
		}
	}
	ended, replayed, err = releaseOver(ctx, s.shared, keys, req)
	return ended, replayed || lost, redisconn.After(lost, err)
}

func releaseOver(
	ctx context.Context, over *redisconn.Transport, keys []string, req driver.ReleaseRequest,
) (ended int, replayed bool, err error) {
	args := []any{req.Owner, req.Tombstone.Milliseconds()}
	if req.Leave {
		args = append(args, 1)
	}
	cmd, replayed := releaseScript.Run(ctx, over, keys, args...)
	if err := cmd.Err(); req.Tombstone == 0 && (redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK")) {
		// While a slot moves, neither of its nodes accepts a request with keys that are not there.
		// Without the queue, its waiters find the lock free when they ask.
		lost := replayed
		cmd, replayed = releaseScript.Run(ctx, over, keys[:2], args...)
		replayed = replayed || lost
	}
	ended, err = cmd.Int()
	return ended, replayed, redisconn.After(replayed, err)
}

// extends chooses what extends go over: the service's own client, so that a pool which the application has used up does
// not starve them. But a client that follows Sentinels is told of a fail-over, and the second one is not: it could go on
// renewing with a master that was cut off and replaced, but still answers.
func (s *service) extends() *redisconn.Transport {
	if s.own == nil || redisconn.FollowsSentinels(s.client) && !s.shared.UsedUp("") {
		return s.shared
	}
	return s.own
}

// failed turns an error of a client into the driver's.
func (s *service) failed(err error) error {
	if s.own != nil {
		redisconn.LookAnew(s.ownClient, err)
	}
	return redisconn.Explain(s.client, "redislock", err)
}

func (s *service) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	of := keysOf(name)
	cmd, _ := inspectScript.Run(ctx, s.shared, []string{of.lock(), of.line()})
	reply, err := cmd.Slice()
	if err != nil {
		return driver.State{}, s.failed(err)
	}
	if len(reply) == 0 {
		return driver.State{}, nil
	}
	return parseState(reply)
}

// Close closes the service's own client and its subscription. The client of the caller stays open.
func (s *service) Close() error {
	s.wakes.close()
	var err error
	if s.own != nil {
		err = s.ownClient.Close()
	}
	if s.ownsClient {
		err = errors.Join(err, s.client.Close())
	}
	s.shared.Wait()
	if s.own != nil {
		s.own.Wait()
	}
	return err
}
