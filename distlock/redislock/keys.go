package redislock

import (
	"strings"

	"github.com/belugalock/belugalock/distlock/driver"
)

// keys is the common prefix of a lock's keys, "namespace:{key}:". A namespace has no brace, so the
// first brace begins the hash tag. A '}' in the key is escaped, so the next one ends the hash tag.
// Two names thus have two prefixes, and the hash tag of a Cluster is exactly the key.
type keys string

var (
	escaper   = strings.NewReplacer("%", "%25", "}", "%7D")
	unescaper = strings.NewReplacer("%25", "%", "%7D", "}")
)

func keysOf(name driver.Name) keys {
	key := name.Key
	if strings.ContainsAny(key, "%}") { // seldom, and the escaper is slow
		key = escaper.Replace(key)
	}
	return keys(name.Namespace + ":{" + key + "}:")
}

// all are the keys of a lock, in the order of the scripts.
func (k keys) all() []string { return []string{k.lock(), k.queue(), k.waiters(), k.tombstones()} }

func (k keys) lock() string       { return string(k) + "lock" }
func (k keys) queue() string      { return string(k) + "queue" }
func (k keys) waiters() string    { return string(k) + "waiters" }
func (k keys) tombstones() string { return string(k) + "tombstones" }
