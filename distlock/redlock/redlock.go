package redlock

import (
	"cmp"
	"errors"
	"fmt"
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
	// server may have lost grants; default 30 s, or Options.TTL if that is longer. It must be the same
	// in all processes. A call with a longer TTL fails with distlock.ErrRefused. A negative one
	// switches this off: only for nodes that never lose data.
	RestartDelay time.Duration
}

// New makes a Locker over the Redis servers of clients, its nodes. The caller closes the clients
// after the Locker. Nil opts mean the defaults. New does no I/O.
//
// It refuses with distlock.ErrInvalidOption: fewer than 3 nodes, an even number, a client that is not a
// *redis.Client for one server, and two clients with one address.
//
// The Locker has connections of its own, with the options of each client. Hooks of the clients do
// not see the calls.
func New(clients []redis.UniversalClient, opts *Options) (*distlock.Locker, error) {
	if opts == nil {
		opts = &Options{}
	}
	d, err := NewDriver(clients, opts)
	if err != nil {
		return nil, err
	}
	locker, err := distlock.New(d, &opts.Options)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return locker, nil
}

// NewDriver makes the driver of [New]. Of opts it uses RestartDelay and TTL. The driver's Close, or that
// of its Locker, closes the driver's connections. The caller closes the clients.
func NewDriver(clients []redis.UniversalClient, opts *Options) (driver.Driver, error) {
	if opts == nil {
		opts = &Options{}
	}
	return newDriver(clients, cmp.Or(opts.RestartDelay, max(opts.TTL, defaultDelay)), false)
}

// defaultDelay is the least default of a RestartDelay: the default TTL of distlock.
const defaultDelay = 30 * time.Second

func newDriver(clients []redis.UniversalClient, restartDelay time.Duration, ownsClients bool) (driver.Driver, error) {
	ofNodes, err := oneServerEach(clients)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", distlock.ErrInvalidOption, err)
	}
	var all claims
	nodes := make([]quorum.Node, len(ofNodes))
	for i, client := range ofNodes {
		nodes[i] = newNode(client, ownsClients, &uptime{node: client.Options().Addr, claims: &all})
	}
	return quorum.New(nodes, restartDelay), nil
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
		node, _ := client.(*redis.Client)
		if node == nil || redisconn.FollowsSentinels(client) {
			return nil, fmt.Errorf("the client of node %d is a %T that is nil, for several servers or of an unknown type, "+
				"and each node is one server of its own: make the client with redis.NewClient", i+1, client)
		}
		addr := node.Options().Addr
		if first, ok := places[addr]; ok {
			return nil, fmt.Errorf("the nodes %d and %d have one address, %s: give each node a server of its own", first, i+1, addr)
		}
		places[addr], nodes[i] = i+1, node
	}
	return nodes, nil
}
