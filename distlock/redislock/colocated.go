package redislock

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// Colocated is the lock of a store on the same Redis. Scripts of the store check fencing tokens
// against this lock. Colocated is for packages like redisstore, and may change between releases:
// use all packages of this module in one version.
type Colocated struct {
	// Lock is the key of the lock. Only redislock writes the key. One script can use the key with
	// every other key that has the same hash tag, see [HashTag], in a Cluster too.
	Lock string
	// Releases reports whether a script of the store may release the lock. It is false if the
	// driver of the locks is wrapped, because the wrapper has to see each release.
	Releases bool
}

// ColocatedLua defines two Lua functions. is_granted(Lock, token) reports whether the token, a
// number, was reserved for the present owner of the lock. release_lock(Lock, owner) releases the
// lock if that owner holds it, and if no waiter and no tombstone can be there. It then returns
// 'released'. It may raise an error.
var ColocatedLua = lua("granted") + `
local function release_lock(key, owner)
local has_queue, only_releases = true, true
` + lua("release") + "end\n"

// ColocatedOf returns the lock on key, if locker keeps its locks through this client. It reports
// false for another client, even one with the same address.
func ColocatedOf(locker *distlock.Locker, client redis.UniversalClient, key string) (Colocated, bool) {
	locks := fencing.Driver(locker)
	s, ok := driver.As[*service](locks)
	if !ok || s.client != client {
		return Colocated{}, false
	}
	name := driver.Name{Namespace: fencing.Options(locker).Namespace, Key: key}
	return Colocated{Lock: keysOf(name).lock(), Releases: locks == driver.Driver(s)}, true
}

// HashTag returns the beginning of a lock's keys after their namespace, "{key}:". In a Cluster it
// decides the slot of the keys.
func HashTag(key string) string {
	return string(keysOf(driver.Name{Key: key})[1:])
}

// KeyOf returns the key whose [HashTag] is given. It reports false if no key has it.
func KeyOf(hashTag string) (key string, ok bool) {
	key = unescaper.Replace(strings.TrimSuffix(strings.TrimPrefix(hashTag, "{"), "}:"))
	return key, HashTag(key) == hashTag
}
