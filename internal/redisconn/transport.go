// Package redisconn sends the commands and scripts of this module to Redis: those of the lock, and
// those of stores beside the lock. It adds to go-redis what both need.
//
//   - A caller leaves as soon as its ctx ends, although go-redis reads on.
//   - go-redis writes one copy of a [Call]. Repeat sends others, and reports that.
//   - Calls that are ready at the same time share a round trip.
//   - Each error says what to do about it, and is of a kind of package driver.
package redisconn

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Transport sends commands over a client. Its methods return as soon as their ctx ends.
type Transport struct {
	client  redis.UniversalClient
	any     *exchange      // for all nodes
	nodes   sync.Map       // of a Cluster: *exchange by the address of the node
	leading sync.WaitGroup // the goroutines of all exchanges
}

// New makes a transport over client, which stays the caller's.
func New(client redis.UniversalClient) *Transport {
	t := &Transport{client: client}
	t.any = newExchange(client, &t.leading)
	return t
}

// Wait returns when all commands have ended, also those whose callers have left. Close the client first
// to cut them short.
func (t *Transport) Wait() { t.leading.Wait() }

// noWait is a context that has ended. With it, a client of a Cluster answers from what it knows.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// node returns the client of the master for key in a Cluster. It is nil without a Cluster, and before
// the client has loaded the Cluster's nodes.
func (t *Transport) node(key string) *redis.Client {
	c, ok := t.client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	node, err := c.MasterForKey(noWait, key)
	if err != nil {
		return nil
	}
	return node
}

// exchange returns where calls for the node of key meet.
func (t *Transport) exchange(key string) *exchange {
	node := t.node(key)
	if node == nil {
		return t.any
	}
	addr := node.Options().Addr
	x, ok := t.nodes.Load(addr)
	if !ok { // its pipelines go over the Cluster's client, which follows keys that have moved
		x, _ = t.nodes.LoadOrStore(addr, newExchange(t.client, &t.leading))
	}
	return x.(*exchange)
}

// UsedUp reports whether a command on key would have to wait for a connection of the client.
func (t *Transport) UsedUp(key string) bool {
	node, ok := t.client.(*redis.Client)
	if !ok {
		node = t.node(key)
	}
	if node == nil {
		return false
	}
	stats := node.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= node.Options().PoolSize
}

// process makes a call whose first key is given, and returns its error. After an error an exchange may
// still write to the call.
func (t *Transport) process(ctx context.Context, key string, cmd *Call) error {
	if err := t.exchange(key).process(ctx, cmd); err != nil {
		return err
	}
	return cmd.Failure()
}

// Pipelined sends the commands in one exchange of their own. Each has its own error. If Pipelined fails,
// ctx has ended before the answers, and the commands must not be read.
func (t *Transport) Pipelined(ctx context.Context, cmds ...redis.Cmder) error {
	return t.any.alone(ctx, cmds, func(ctx context.Context) { pipelined(ctx, t.client, cmds) })
}

// InOrder is Pipelined for commands on the keys of one session, which take effect in their order. In a
// Cluster that moves the keys, this needs more than one exchange. go-redis may send the commands again
// if none is a Call.
func (t *Transport) InOrder(ctx context.Context, key string, cmds ...redis.Cmder) error {
	return t.any.alone(ctx, cmds, func(ctx context.Context) {
		if len(cmds) > 1 && t.byOneNode(ctx, key, cmds) {
			return
		}
		for _, cmd := range cmds {
			_ = t.client.Process(ctx, cmd)
		}
	})
}

// byOneNode reports whether the commands were answered by the node that they were sent to. ⚑ A pipeline
// over all nodes of a Cluster will not do: while a slot moves, go-redis lets two nodes answer at the
// same time.
func (t *Transport) byOneNode(ctx context.Context, key string, cmds []redis.Cmder) bool {
	client := t.client
	if c, ok := client.(*redis.ClusterClient); ok {
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return false
		}
		client = node
	}
	pipelined(ctx, client, cmds)
	return !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool {
		return slices.ContainsFunc([]string{"MOVED", "ASK", "TRYAGAIN"}, func(code string) bool {
			return redis.HasErrorPrefix(cmd.Err(), code)
		})
	})
}

// pipelined makes all commands in one exchange. Each has its own error.
func pipelined(ctx context.Context, client redis.UniversalClient, cmds []redis.Cmder) {
	pipe := client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds { // ⚑ the error is a hook's, or a reply to the set-up of the connection
			cmd.SetErr(err)
		}
	}
}
