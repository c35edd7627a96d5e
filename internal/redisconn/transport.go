// Package redisconn sends the commands and scripts of locks and stores to Redis. It adds to go-redis:
//
//   - A caller leaves as soon as its ctx ends, although go-redis reads on.
//   - go-redis writes one copy of a [Call]. Repeat sends others, and reports that.
//   - Calls that are ready at the same time share a round trip.
//   - An error says whether a copy may have taken effect.
package redisconn

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Transport sends commands to the Redis of a client. Its methods return as soon as their ctx ends.
//
// For a *redis.Client, and for the nodes of a *redis.ClusterClient, it has connections of its own, with the
// options of the client. The client itself sends what a node of a Cluster redirects, and the first
// calls, before it knows the nodes. A client that follows Sentinels sends calls as long as its pool has a
// free connection. A client of another type sends all calls.
type Transport struct {
	client  redis.UniversalClient
	tune    func(*redis.Options) // of its own connections; nil: none
	running sync.WaitGroup       // round trips

	overClient *nodeQueue // of the calls that the client itself sends

	mu     sync.Mutex
	nodes  map[string]*nodeQueue // by the address of the node
	closed bool
}

// New makes a transport over client, which stays the caller's. A tune changes the options of its own
// connections. It may be nil.
func New(client redis.UniversalClient, tune func(*redis.Options)) *Transport {
	t := &Transport{client: client, tune: tune, nodes: make(map[string]*nodeQueue)}
	t.overClient = newNodeQueue(t, nil)
	return t
}

// Client returns the client of the transport.
func (t *Transport) Client() redis.UniversalClient { return t.client }

// Close closes the transport's own connections. It returns when all commands have ended, also those whose
// callers have left. Later calls fail with redis.ErrClosed.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.nodes {
		for _, c := range q.idle {
			_ = c.client.Close()
		}
	}
}

// start counts a round trip. It reports false after Close. ⚑ A WaitGroup panics if a goroutine starts
// while the last one ends.
func (t *Transport) start() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.running.Add(1)
	return true
}

// noWait is a context that has ended. With it, a client of a Cluster uses the nodes that it knows.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// queueOf returns the queue of the node of key.
func (t *Transport) queueOf(key string) *nodeQueue {
	var node *redis.Client
	switch c := t.client.(type) {
	case *redis.Client:
		if FollowsSentinels(c) && !usedUp(c) {
			// ⚑ Only the application's client learns of a failover. A master that was cut off and
			// replaced may still answer.
			break
		}
		node = c
	case *redis.ClusterClient:
		node, _ = c.MasterForKey(noWait, key)
	}
	if node == nil {
		return t.overClient
	}
	return t.queueWith(node.Options().Addr, node.Options())
}

// queueWith returns the queue of the node at an address, over connections with the given options.
func (t *Transport) queueWith(addr string, options *redis.Options) *nodeQueue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.nodes[addr]
	if q != nil {
		return q
	}
	options = ownOptions(options)
	if t.tune != nil {
		t.tune(options)
	}
	q = newNodeQueue(t, options)
	t.nodes[addr] = q
	return q
}

// usedUp reports whether a command has to wait for a connection of the client.
func usedUp(client *redis.Client) bool {
	stats := client.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= client.Options().PoolSize
}

// Do sends a command to the node of key, and returns its error. If ctx has ended, the command must not
// be read.
func (t *Transport) Do(ctx context.Context, key string, cmd redis.Cmder) error {
	if err := t.Send(ctx, key, cmd); err != nil {
		return err
	}
	return cmd.Err()
}

// notRun reports whether a node of a Cluster has not run a command, see wasNotRun.
func notRun(cmd redis.Cmder) bool { return wasNotRun(cmd.Err()) }

// Send sends commands whose keys are all on the node of key, in one round trip. They take effect in their
// order. Each has its own error. If Send fails, ctx has ended before the answers, and the commands must
// not be read. In a Cluster that moves the keys, this needs more than one round trip.
func (t *Transport) Send(ctx context.Context, key string, cmds ...redis.Cmder) error {
	q := t.queueOf(key)
	own := q != t.overClient
	first := 0
	if _, isCluster := t.client.(*redis.ClusterClient); own || !isCluster {
		if err := q.send(ctx, cmds...); err != nil || !isCluster {
			return err
		}
		if first = slices.IndexFunc(cmds, notRun); first < 0 {
			return nil
		}
	}
	// ⚑ Commands before the first that was not run keep their answers: another copy may be refused, and the
	// error would hide the effect. Those after it follow it in their order, and may have taken effect before.
	done := own && slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return !notRun(cmd) })
	// ⚑ A pipeline over all nodes of a Cluster will not do: while a slot moves, go-redis lets two nodes
	// answer at the same time.
	for i, cmd := range cmds[first:] {
		ran := own && !notRun(cmd)
		if call, ok := cmd.(*Call); ok && !ran {
			call.sent.written = false // the copy was rejected
		}
		if err := t.overClient.send(ctx, cmd); err != nil {
			return WithEarlierCopy(done || i > 0, err)
		}
		cmd.SetErr(WithEarlierCopy(ran, cmd.Err()))
	}
	return nil
}
