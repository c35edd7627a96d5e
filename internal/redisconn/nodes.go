package redisconn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Node is a node that keeps keys.
type Node struct {
	Addr     string
	exchange *exchange
}

// Do sends a command to the node, see Transport.Do.
func (n Node) Do(ctx context.Context, cmd redis.Cmder) error {
	if err := n.exchange.send(ctx, cmd); err != nil {
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
		return []Node{{c.Options().Addr, t.exchange("")}}, nil
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
			nodes = append(nodes, Node{node.Options().Addr, t.load(node.Options().Addr, node.Options())})
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

// place is where a page of the keys of all nodes begins. The zero place is the beginning.
type place struct {
	Node   string // the first node of the page with this address or a higher one
	Cursor uint64
}

// scanned is how many keys Redis reads for one page, unless more of them match than the page may have.
const scanned = 1000

var patterns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Keys returns a page of the keys with a prefix and a suffix, in order, each once. The page begins after
// the page that returned next; empty: at the beginning. The last page returns an empty next.
//
// A page covers about 1,000 keys of one node, whether they match or not. If more than limit of them match,
// the page covers about limit keys instead. A key that is there throughout is on one page or more, as long
// as no server restarts, no replica takes over and no slot moves.
func (t *Transport) Keys(
	ctx context.Context, after, prefix, suffix string, limit int,
) (keys []string, next string, err error) {
	var begin place
	if after != "" && json.Unmarshal([]byte(after), &begin) != nil {
		return nil, "", notSent(errors.New("no page has returned this place: use the one that the last page returned"))
	}
	_, err = t.Repeat(ctx, func() (err error) {
		keys, next, err = t.keys(ctx, begin, patterns.Replace(prefix)+"*"+patterns.Replace(suffix), limit)
		return err
	})
	return keys, next, err
}

// keys asks once for the page of the keys that match a pattern.
func (t *Transport) keys(
	ctx context.Context, at place, pattern string, limit int,
) (keys []string, next string, err error) {
	nodes, err := t.Masters(ctx)
	if err != nil {
		return nil, "", err
	}
	nodes = slices.DeleteFunc(nodes, func(n Node) bool { return n.Addr < at.Node })
	if len(nodes) == 0 {
		return nil, "", nil
	}
	if nodes[0].Addr != at.Node { // the node before has no more keys, or is gone
		at = place{Node: nodes[0].Addr}
	}
	var cursor uint64
	for _, count := range []int{scanned, limit} {
		cmd := redis.NewScanCmd(ctx, nil, "scan", at.Cursor, "match", pattern, "count", count)
		if err := nodes[0].Do(ctx, cmd); err != nil {
			return nil, "", err
		}
		if keys, cursor = cmd.Val(); len(keys) <= limit {
			break
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if at.Cursor = cursor; cursor == 0 {
		if len(nodes) == 1 {
			return keys, "", nil
		}
		at.Node = nodes[1].Addr
	}
	text, _ := json.Marshal(at)
	return keys, string(text), nil
}
