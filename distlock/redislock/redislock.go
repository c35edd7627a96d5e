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

// New makes a Locker for the Redis of client, which stays the caller's: closing the Locker does not close
// it. Nil opts mean the defaults. It does no I/O. It refuses a nil client, a kind of client that cannot
// keep a lock, and options out of range with distlock.ErrInvalidOption.
//
// The Locker has connections of its own, with the options of client, so a pool without a free connection
// delays no call. The hooks of client do not see the calls. A client that is neither *redis.Client nor
// *redis.ClusterClient sends the calls itself.
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

// NewDriver makes a driver for the Redis of client, which stays the caller's. The driver's Close, or that
// of its Locker, closes the driver's connections, see New.
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
	return &service{client: client, redis: redisconn.New(client), wakes: newWakes(client)}
}

// service is a driver.Driver.
type service struct {
	client redis.UniversalClient
	// ownsClient says that Close also closes the client.
	ownsClient bool
	redis      *redisconn.Transport // over the client
	wakes      *wakes
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
	cmd, replayed := acquireScript.Run(ctx, s.redis, keys, args...)
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

// extend sends the requests that todo lists, in one exchange for each node. It returns the requests that
// failed because a node does not know the script. If the first request is sent whole, its node knows the
// script for the next ones.
func (s *service) extend(
	ctx context.Context, reqs []driver.ExtendRequest, replies []driver.ExtendReply, todo []int, whole bool,
) (unknown []int) {
	keys, calls := make([]string, len(todo)), make([]*redisconn.Call, len(todo))
	for n, i := range todo {
		exact := "0"
		if reqs[i].Exact {
			exact = "1"
		}
		keys[n] = keysOf(reqs[i].Name).lock()
		calls[n] = extendScript.Call(ctx, whole && n == 0, keys[n:n+1], reqs[i].Owner, reqs[i].TTL.Milliseconds(), exact)
	}
	for n, err := range s.redis.Each(ctx, keys, calls) {
		i := todo[n]
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, i)
			continue
		}
		if err != nil {
			replies[i].Err = s.failed(err)
			continue
		}
		held, err := calls[n].Int()
		if replies[i].Held = held == 1; err != nil {
			replies[i].Err = errReply
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

func (s *service) release(
	ctx context.Context, keys []string, req driver.ReleaseRequest,
) (ended int, replayed bool, err error) {
	args := []any{req.Owner, req.Tombstone.Milliseconds()}
	if req.Leave {
		args = append(args, 1)
	}
	cmd, replayed := releaseScript.Run(ctx, s.redis, keys, args...)
	if err := cmd.Err(); req.Tombstone == 0 && (redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK")) {
		// While a slot moves, neither of its nodes accepts a request with keys that are not there.
		// Without the queue, its waiters find the lock free when they ask.
		lost := replayed
		cmd, replayed = releaseScript.Run(ctx, s.redis, keys[:2], args...)
		replayed = replayed || lost
	}
	ended, err = cmd.Int()
	return ended, replayed, redisconn.After(replayed, err)
}

func (s *service) failed(err error) error { return redisconn.Explain(s.client, "redislock", err) }

func (s *service) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	of := keysOf(name)
	cmd, _ := inspectScript.Run(ctx, s.redis, []string{of.lock(), of.line()})
	reply, err := cmd.Slice()
	if err != nil {
		return driver.State{}, s.failed(err)
	}
	if len(reply) == 0 {
		return driver.State{}, nil
	}
	return parseState(reply)
}

// Close closes the service's own connections and its subscription. The client of the caller stays open.
func (s *service) Close() error {
	s.wakes.close()
	s.redis.Close()
	if s.ownsClient {
		return s.client.Close()
	}
	return nil
}
