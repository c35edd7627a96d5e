package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Options configure a Locker. The zero Options, and nil, mean the defaults.
type Options struct {
	distlock.Options
	// RestartDelay is how long a node does not count after a start of its server, because the
	// server may have lost grants. 0 means the largest TTL that the Locker has seen, and at least
	// Options.TTL, or 30 s for a driver without options. A positive one must be the same in all
	// processes, and at least the largest TTL of all. A longer TTL is refused. Set it if any call of
	// any process asks for more than Options.TTL. A negative one switches this off: only for nodes that
	// never lose data.
	RestartDelay time.Duration
}

// New makes a Locker over the Redis servers of clients, its nodes. The caller closes the clients
// after the Locker. Nil opts mean the defaults. New does no I/O.
//
// It refuses with distlock.ErrInvalidOption: fewer than 3 nodes, an even number, a client that is not a
// *redis.Client for one server, two clients with one address, and a positive RestartDelay below the TTL.
//
// The Locker has connections of its own, with the options of each client. Hooks of the clients do
// not see the calls.
func New(clients []redis.UniversalClient, opts *Options) (*distlock.Locker, error) {
	if opts == nil {
		opts = &Options{}
	}
	if ttl := cmp.Or(opts.TTL, defaultTTL); opts.RestartDelay > 0 && opts.RestartDelay < ttl {
		return nil, fmt.Errorf("%w: RestartDelay is %s, shorter than the TTL of %s: a node would count while it lacks a grant "+
			"that has not ended; set at least the largest TTL of all processes, with a unit, or leave it out",
			distlock.ErrInvalidOption, opts.RestartDelay, ttl)
	}
	d, err := open(clients, opts.RestartDelay, opts.TTL)
	if err != nil {
		return nil, err
	}
	locker, err := distlock.New(d, &opts.Options)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return locker, nil
}

// NewDriver makes a driver over the Redis servers of clients, see [New]. restartDelay is that of
// [Options]. The driver's Close, or that of its Locker, closes the driver's connections. The caller
// closes the clients.
func NewDriver(clients []redis.UniversalClient, restartDelay time.Duration) (driver.Driver, error) {
	return open(clients, restartDelay, 0)
}

// open is NewDriver for leases with a TTL; 0: the default of distlock.
func open(clients []redis.UniversalClient, restartDelay, ttl time.Duration) (driver.Driver, error) {
	nodes, err := oneServerEach(clients)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", distlock.ErrInvalidOption, err)
	}
	return newDriver(nodes, restartDelay, ttl, false), nil
}

// defaultTTL is that of distlock.
const defaultTTL = 30 * time.Second

func newDriver(clients []*redis.Client, restartDelay, ttl time.Duration, ownsClients bool) driver.Driver {
	var all servers
	nodes := make([]quorum.Node, len(clients))
	for i, client := range clients {
		name := client.Options().Addr
		up := &uptime{node: name, servers: &all}
		nodes[i] = newNode(client, ownsClients, up)
	}
	return quorum.New(nodes, restartDelay, cmp.Or(ttl, defaultTTL))
}

// oneServerEach returns the clients of the nodes, or the reason why they are no quorum.
func oneServerEach(clients []redis.UniversalClient) ([]*redis.Client, error) {
	switch n := len(clients); {
	case n < 3:
		return nil, fmt.Errorf("redlock needs 3 nodes or more to survive the loss of one, and has %d: "+
			"add nodes, or use redislock with one node", n)
	case n%2 == 0:
		return nil, fmt.Errorf("%d nodes survive the loss of no more nodes than %d, and need a larger quorum: "+
			"use an odd number of nodes", n, n-1)
	}
	nodes := make([]*redis.Client, len(clients))
	places := make(map[string]int)
	for i, client := range clients {
		if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, fmt.Errorf("the client of node %d is nil: make one with redis.NewClient", i+1)
		}
		node, ok := client.(*redis.Client)
		if !ok || redisconn.FollowsSentinels(client) {
			return nil, fmt.Errorf("the client of node %d is a %T for several servers or of an unknown type, and each node "+
				"is one server of its own: make the client with redis.NewClient", i+1, client)
		}
		addr := node.Options().Addr
		if first, ok := places[addr]; ok {
			return nil, fmt.Errorf("the nodes %d and %d have one address, %s: give each node a server of its own", first, i+1, addr)
		}
		places[addr], nodes[i] = i+1, node
	}
	return nodes, nil
}
