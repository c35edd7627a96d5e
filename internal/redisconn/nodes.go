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
	// Rest are keys that SCAN returned beyond the limit of the page before. ⚑ A repeated SCAN can return
	// other keys: it reads on where others have expired.
	Rest [][]byte
}

// scanned is how many keys Redis reads for one page, unless more of them match than the page may have.
const scanned = 1000

var patterns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Keys returns a page of at most limit keys with a prefix and a suffix, in order, each once. It begins
// after the page that returned next; empty: at the beginning. The last page returns an empty next.
//
// A page covers about 1,000 keys of one node, whether they match or not. A key that is there throughout
// is on one page or more, as long as no server restarts, no replica takes over and no slot moves.
func (t *Transport) Keys(
	ctx context.Context, after, prefix, suffix string, limit int,
) (keys []string, next string, err error) {
	var at place
	if after != "" && json.Unmarshal([]byte(after), &at) != nil {
		return nil, "", notSent(errors.New("no page has returned this place: use the one that the last page returned"))
	}
	_, err = t.Repeat(ctx, func() (err error) {
		keys, next, err = t.keys(ctx, at, patterns.Replace(prefix)+"*"+patterns.Replace(suffix), limit)
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
	first := func() int { return slices.IndexFunc(nodes, func(n Node) bool { return n.Addr >= at.Node }) }
	for _, key := range at.Rest {
		keys = append(keys, string(key))
	}
	if i := first(); len(keys) == 0 && i >= 0 {
		if nodes[i].Addr != at.Node { // the node before has no more keys, or is gone
			at = place{Node: nodes[i].Addr}
		}
		var cursor uint64
		for _, count := range []int{scanned, limit} {
			cmd := redis.NewScanCmd(ctx, nil, "scan", at.Cursor, "match", pattern, "count", count)
			if err := nodes[i].Do(ctx, cmd); err != nil {
				return nil, "", err
			}
			if keys, cursor = cmd.Val(); len(keys) <= limit {
				break
			}
		}
		if at.Cursor = cursor; cursor == 0 {
			at.Node += "\x00" // the next address
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
	}
	n := min(len(keys), limit)
	at.Rest = nil
	for _, key := range keys[n:] {
		at.Rest = append(at.Rest, []byte(key))
	}
	if len(at.Rest) == 0 && first() < 0 {
		return keys[:n], "", nil
	}
	text, _ := json.Marshal(at)
	return keys[:n], string(text), nil
}
