package redislock

import (
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// Colocated is what a store needs that keeps its data on the Redis of its locks, to check a fencing token
// against the lock itself. It is for packages like redisstore, and may change between releases: use
// all packages of this module in one version.
type Colocated struct {
	// Lock is the key of a lock, which stays redislock's to write. It can stand in one script with any
	// other key that has the same hash tag, see [HashTag], in a Cluster too.
	Lock string
}

// ColocatedLua defines a function of Lua: is_granted(Lock, token) reports whether a token, a number, is
// one of the lock's present owner.
//
//go:embed lua/granted.lua
var ColocatedLua string

// ColocatedOf returns the key of the lock on key, if locker keeps its locks on the Redis of this very client.
// It reports false for another client, also if that has the same address.
func ColocatedOf(locker *distlock.Locker, client redis.UniversalClient, key string) (Colocated, bool) {
	s, ok := driver.As[*service](fencing.Driver(locker))
	if !ok || s.client != client {
		return Colocated{}, false
	}
	return Colocated{Lock: keysOf(driver.Name{Namespace: fencing.Options(locker).Namespace, Key: key}).lock()}, true
}

// HashTag is how the keys of a lock begin after their namespace, "{key}:": what decides in which slot of a Cluster they are.
func HashTag(key string) string {
	return string(keysOf(driver.Name{Key: key})[1:])
}
