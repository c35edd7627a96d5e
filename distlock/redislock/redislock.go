package redislock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// New makes a Locker over client, which stays the caller's: closing the Locker does not close it. Nil opts mean the
// defaults. It does no I/O; a nil client, a kind of client that cannot keep a lock, and options out of range are refused
// with distlock.ErrInvalidOption.
//
// A client with ContextTimeoutEnabled makes acquiring and releasing quicker, because the Locker need not guard against
// calls that outlast their context. Extends and renewals go over a second client, made with the options of the first, so
// that a pool without a free connection does not starve them; with a type of client that is neither *redis.Client nor
// *redis.ClusterClient they share its pool.
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
	s := &service{client: client, renewals: client}
	if own := renewalClient(client); own != nil {
		s.renewals, s.own = own, own
	}
	if c, ok := client.(*redis.Client); ok && c.Options().ContextTimeoutEnabled {
		s.single = c
	}
	return s, nil
}

// service is a driver.Driver.
type service struct {
	client redis.UniversalClient
	// renewals is what extends go over: own, if there is one, or client.
	renewals redis.UniversalClient
	own      redis.UniversalClient
	// single is the client if it speaks to one node and keeps deadlines, or nil.
	single *redis.Client
	// payloads keeps the last payload without metadata: a Locker's holder is always the same.
	payloads atomic.Pointer[encoded]
}

func (s *service) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "redis", Shared: true, Expires: true}
}

// Ready implements driver.Punctual: a call that has a connection at hand keeps its deadline if the client does. One that
// has to wait for a connection or to open one might not.
func (s *service) Ready() bool { return s.single != nil && s.single.PoolStats().IdleConns > 0 }

func (s *service) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	keys := keysOf(req.Name)
	reply, err := acquireScript.run(ctx, s.client, []string{keys.lock(), keys.fence(), keys.void(req.Owner)},
		req.Owner, req.TTL.Milliseconds(), req.FenceFloor, s.payload(req.Holder, req.Metadata)).Slice()
	if err != nil {
		return driver.AcquireReply{}, explain(err)
	}
	return parseAcquire(reply)
}

func (s *service) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	todo := make([]int, len(reqs))
	for i := range todo {
		todo[i] = i
	}
	todo = s.extend(ctx, reqs, replies, todo, (*script).evalSHA)
	if len(todo) > 0 { // the server did not know the script
		s.extend(ctx, reqs, replies, todo, (*script).eval)
	}
	return replies
}

// extend sends the requests that todo lists, in one exchange, and returns those that failed for want of the script.
func (s *service) extend(ctx context.Context, reqs []driver.ExtendRequest, replies []driver.ExtendReply, todo []int,
	send func(*script, context.Context, redis.Scripter, []string, ...any) *redis.Cmd) (unknown []int) {
	pipe := s.renewals.Pipeline()
	cmds := make([]*redis.Cmd, len(todo))
	for n, i := range todo {
		exact := "0"
		if reqs[i].Exact {
			exact = "1"
		}
		cmds[n] = send(extendScript, ctx, pipe, []string{keysOf(reqs[i].Name).lock()},
			reqs[i].Owner, reqs[i].TTL.Milliseconds(), exact)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for n, i := range todo {
		held, err := cmds[n].Int()
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, i)
		case err != nil:
			replies[i] = driver.ExtendReply{Err: explain(err)}
		default:
			replies[i] = driver.ExtendReply{Held: held == 1}
		}
	}
	return unknown
}

func (s *service) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	keys := keysOf(req.Name)
	ended, err := releaseScript.run(ctx, s.client, []string{keys.lock(), keys.fence(), keys.void(req.Owner)},
		req.Owner, req.VoidFor.Milliseconds()).Int()
	if err != nil {
		return driver.ReleaseReply{}, explain(err)
	}
	return driver.ReleaseReply{Released: ended == 1}, nil
}

func (s *service) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	reply, err := inspectScript.run(ctx, s.client, []string{keysOf(name).lock()}).Slice()
	if err != nil {
		return driver.State{}, explain(err)
	}
	if len(reply) == 0 {
		return driver.State{}, nil
	}
	return parseState(reply)
}

// Close closes the service's own client; that of the caller stays open.
func (s *service) Close() error {
	if s.own == nil {
		return nil
	}
	return s.own.Close()
}

// foreign is the error for data that another program has put in the place of a lock.
func foreign(cause error) error {
	return fmt.Errorf("redislock: %w: choose another Namespace, or remove the Redis key: %w", driver.ErrForeign, cause)
}

// explain adds to an error of Redis what to do about it. No text names a key.
func explain(err error) error {
	advice := ""
	switch {
	case says(err, "WRONGTYPE"), says(err, "FOREIGN"):
		return foreign(err)
	case says(err, "FENCE"):
		advice = "the floor that a store gave, or the server's clock, is wrong"
	case says(err, "NOAUTH"), says(err, "WRONGPASS"):
		advice = "check the user and password that the client was given"
	case says(err, "NOPERM"), says(err, "The user executing the script can't"):
		advice = "the ACL user lacks a right, the package documentation of redislock lists what is needed"
	case says(err, "OOM"):
		advice = "Redis is out of memory: raise maxmemory or free some; leases that are held are still renewed and released"
	case says(err, "READONLY"):
		advice = "this node is a replica: give the client the address of the master"
	case isDial(err):
		advice = "is Redis running at the address that the client was given?"
	}
	if advice == "" {
		return fmt.Errorf("redislock: %w", err)
	}
	return fmt.Errorf("redislock: %w (%s)", err, advice)
}

// says reports whether err is an error reply with the given code, also when the reply quotes an error that a
// command in a script met, as Redis before 7.0 does.
func says(err error, code string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return strings.HasPrefix(text, code) || strings.Contains(text, " "+code+" ") || strings.Contains(text, "-"+code+" ")
}

var errReply = errors.New("redislock: the server's reply makes no sense: do other versions of this library, or proxies, come between?")
