package redislock

import (
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/rediskeys"
)

// keys is the common prefix of a lock's keys, "namespace:{key}:".
type keys string

func keysOf(name driver.Name) keys { return keys(rediskeys.Prefix(name.Namespace, name.Key)) }

// HashTag returns the beginning of a lock's keys after their namespace, "{key}:". In a Cluster it
// decides the slot of the keys.
func HashTag(key string) string { return rediskeys.Prefix("", key)[1:] }

// all are the keys of a lock, in the order of the scripts.
func (k keys) all() []string { return []string{k.lock(), k.queue(), k.waiters(), k.tombstones()} }

func (k keys) lock() string       { return string(k) + "lock" }
func (k keys) queue() string      { return string(k) + "queue" }
func (k keys) waiters() string    { return string(k) + "waiters" }
func (k keys) tombstones() string { return string(k) + "tombstones" }
