package redisconn

import (
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Scan is a place in the keys of all nodes: a node and a cursor of SCAN. The zero Scan is the beginning.
//
// ⚑ SCAN with the same cursor returns all keys again that were not returned before this cursor.
type Scan struct {
	Node   string // its address
	Cursor uint64
}

// Keys is a page of keys.
type Keys struct {
	Keys []string // in order, each once
	// At is where the page begins. If the node of the place asked for is gone, that is the next node.
	At Scan
	// Next is where the next page begins; the zero Scan after the last page.
	Next Scan
}

// scanned is how many keys Redis reads for one page.
const scanned = 1000

var patterns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Keys returns the page at a place of the keys with a prefix and a suffix. A page covers about 1,000 keys
// of one node, whether they match or not. A key that is there throughout is on one page or more, as long
// as no server restarts, no replica takes over and no slot moves.
func (t *Transport) Keys(ctx context.Context, at Scan, prefix, suffix string) (page Keys, err error) {
	_, err = t.Repeat(ctx, func() (err error) {
		page, err = t.keys(ctx, at, patterns.Replace(prefix)+"*"+patterns.Replace(suffix))
		return err
	})
	return page, err
}

// keys asks once for the page of the keys that match a pattern.
func (t *Transport) keys(ctx context.Context, at Scan, pattern string) (page Keys, err error) {
	nodes, err := t.Masters(ctx)
	if err != nil {
		return page, err
	}
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Addr >= at.Node })
	if i < 0 {
		return page, nil
	}
	if page.At = at; nodes[i].Addr != at.Node {
		page.At = Scan{Node: nodes[i].Addr}
	}
	cmd := redis.NewScanCmd(ctx, nil, "scan", page.At.Cursor, "match", pattern, "count", scanned)
	if err := nodes[i].Do(ctx, cmd); err != nil {
		return Keys{}, err
	}
	keys, cursor := cmd.Val()
	slices.Sort(keys)
	page.Keys = slices.Compact(keys)
	switch {
	case cursor != 0:
		page.Next = Scan{Node: page.At.Node, Cursor: cursor}
	case i+1 < len(nodes):
		page.Next = Scan{Node: nodes[i+1].Addr}
	}
	return page, nil
}
