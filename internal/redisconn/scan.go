package redisconn

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// place is where a page of the keys of all nodes begins. The zero place is the beginning.
//
// ⚑ SCAN with the same cursor returns all keys again that were not returned before this cursor.
type place struct {
	Node   string // its address
	Cursor uint64
	Shown  []byte // the last key that an earlier page has shown of this cursor; empty: none
}

// scanned is how many keys Redis reads for one page.
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
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Addr >= at.Node })
	if i < 0 {
		return nil, "", nil
	}
	if nodes[i].Addr != at.Node { // the node is gone
		at = place{Node: nodes[i].Addr}
	}
	cmd := redis.NewScanCmd(ctx, nil, "scan", at.Cursor, "match", pattern, "count", scanned)
	if err := nodes[i].Do(ctx, cmd); err != nil {
		return nil, "", err
	}
	keys, cursor := cmd.Val()
	slices.Sort(keys)
	keys = slices.DeleteFunc(slices.Compact(keys), func(key string) bool { return key <= string(at.Shown) })
	switch {
	case len(keys) > limit:
		keys = keys[:limit]
		at.Shown = []byte(keys[limit-1])
	case cursor != 0:
		at = place{Node: at.Node, Cursor: cursor}
	case i+1 < len(nodes):
		at = place{Node: nodes[i+1].Addr}
	default:
		return keys, "", nil
	}
	text, _ := json.Marshal(at)
	return keys, string(text), nil
}
