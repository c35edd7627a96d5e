package redisconn

// Locks is the driver of package redislock, as a store on the same Redis sees it.
type Locks interface {
	Transport() *Transport
	// LockKey is the key of a lock. Only package redislock writes the key. One script can use the key with
	// every other key that has the same hash tag, in a Cluster too.
	LockKey(namespace, key string) string
	// StoreLua defines two Lua functions. is_granted(LockKey, token) reports whether the token, a number,
	// was reserved for the present owner of the lock. release_lock(LockKey, owner) releases the lock if that
	// owner holds it, and if no waiter and no tombstone can be there. It then returns 'released'. It may
	// raise an error.
	StoreLua() string
}
