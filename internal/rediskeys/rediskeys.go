// Package rediskeys names the Redis keys of locks and sessions, and lists the names of a namespace.
//
// The keys of a name K in the namespace N begin with "N:{K}:". A namespace has no brace, so the first
// brace begins the hash tag. A '}' in the name is escaped, so the next one ends the hash tag. Two names
// thus have two prefixes, and the hash tag of a Cluster is exactly the name.
package rediskeys

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/redisconn"
)

var (
	escaper   = strings.NewReplacer("%", "%25", "}", "%7D")
	unescaper = strings.NewReplacer("%25", "%", "%7D", "}")
)

// Prefix begins the keys of a name.
func Prefix(namespace, name string) string {
	if strings.ContainsAny(name, "%}") { // seldom, and the escaper is slow
		name = escaper.Replace(name)
	}
	return namespace + ":{" + name + "}:"
}

// place is where a page of the keys of all nodes begins. The zero place is the beginning.
type place struct {
	Node   string // the first node of the page with this address or a higher one
	Cursor uint64
}

// scanned is how many keys Redis reads for one page, unless more of them match than the page may have.
const scanned = 1000

var patterns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Names returns a page of the names in a namespace that have a key with a suffix, in order of their keys.
// The page begins after the page that returned next; empty: at the beginning. The last page returns an
// empty next.
//
// A page covers about 1,000 keys of one node, whether they match or not. If more than limit of them match,
// the page covers about limit keys instead. A key that is there throughout is on one page or more, as long
// as no server restarts, no replica takes over and no slot moves.
func Names(
	ctx context.Context, t *redisconn.Transport, namespace, suffix, after string, limit int,
) (names []string, next string, err error) {
	var begin place
	if after != "" && json.Unmarshal([]byte(after), &begin) != nil {
		return nil, "", fmt.Errorf("%w: no page has returned this place: use the one that the last page returned",
			redisconn.ErrNotDone)
	}
	var keys []string
	_, err = t.Repeat(ctx, func() (err error) {
		keys, next, err = scan(ctx, t, begin, patterns.Replace(namespace)+":{*}:"+suffix, limit)
		return err
	})
	for _, key := range keys {
		name := unescaper.Replace(strings.TrimSuffix(strings.TrimPrefix(key, namespace+":{"), "}:"+suffix))
		if key == Prefix(namespace, name)+suffix {
			names = append(names, name)
		}
	}
	return names, next, err
}

// scan asks once for the page of the keys that match a pattern.
func scan(
	ctx context.Context, t *redisconn.Transport, at place, pattern string, limit int,
) (keys []string, next string, err error) {
	nodes, err := t.Masters(ctx)
	if err != nil {
		return nil, "", err
	}
	nodes = slices.DeleteFunc(nodes, func(n redisconn.Node) bool { return n.Addr < at.Node })
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
