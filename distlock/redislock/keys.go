package redislock

import (
	"strings"

	"github.com/belugalock/belugalock/distlock/driver"
)

// keys is the common prefix of a lock's keys, "namespace:{key}:". A namespace has no brace, so the first one is the
// hash tag's; a '}' in the key is escaped, so the next one ends it. That makes the prefix unambiguous, and the hash tag
// of Redis Cluster exactly the key.
type keys string

var escaper = strings.NewReplacer("%", "%25", "}", "%7D")

func keysOf(name driver.Name) keys {
	key := name.Key
	if strings.ContainsAny(key, "%}") {
		key = escaper.Replace(key)
	}
	return keys(name.Namespace + ":{" + key + "}:")
}

// all are those that acquire and release need of every lock, in the order of the scripts.
func (k keys) all() []string { return []string{k.lock(), k.fence(), k.line(), k.waiters()} }

func (k keys) lock() string             { return string(k) + "lock" }
func (k keys) fence() string            { return string(k) + "fence" }
func (k keys) line() string             { return string(k) + "line" }
func (k keys) waiters() string          { return string(k) + "waiters" }
func (k keys) void(owner string) string { return string(k) + "void:" + owner }
