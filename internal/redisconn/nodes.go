package redisconn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Node is a node that keeps keys.
type Node struct {
	Addr  string
	queue *nodeQueue
}

// Do sends a command to the node, see Transport.Do.
func (n Node) Do(ctx context.Context, cmd redis.Cmder) error {
	if err := n.queue.send(ctx, cmd); err != nil {
		return err
	}
	return cmd.Err()
}

// ErrUnknownClient says that a client of another type shows no nodes.
var ErrUnknownClient = errors.New("the nodes of the client are unknown: " +
	"make the client with redis.NewClient or redis.NewClusterClient")

// Masters returns the nodes that keep keys, by their addresses.
func (t *Transport) Masters(ctx context.Context) ([]Node, error) {
	switch c := t.client.(type) {
	case *redis.Client:
		return []Node{{c.Options().Addr, t.queueOf("")}}, nil
	case *redis.ClusterClient:
		// ⚑ go-redis may read on after ctx has ended while it loads the nodes. A command, whose
		// caller can leave, therefore makes it load them. With noWait it then returns the nodes
		// that it knows.
		load := redis.NewTimeCmd(ctx, "time")
		err := t.Do(ctx, "", load)
		var mu sync.Mutex
		var nodes []Node
		known := c.ForEachMaster(noWait, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, Node{node.Options().Addr, t.queueWith(node.Options().Addr, node.Options())})
			return nil
		})
		if known != nil {
			return nil, cmp.Or(err, known)
		}
		slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Addr, b.Addr) })
		return nodes, nil
	}
	return nil, ErrUnknownClient
}
