// Package redislock keeps locks in Redis: on one node, behind Sentinels, or in a Cluster. It uses
// the client of go-redis that the caller makes:
//
//	locker, err := redislock.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), nil)
//
// Redis keeps one record per name, for a day longer than the lock. Every operation is one script, so
// it happens at one moment by the server's clock, and it may be repeated. docs/design/redis.md
// states the record and its invariants, docs/design/driver.md the states of an owner.
//
// A lock with the key K in the namespace N has these keys. In K, '%' and '}' are written as %25 and
// %7D, so two names never share a key:
//
//	N:{K}:lock        the record: holder, previous owner, token
//	N:{K}:queue       waiters by ticket
//	N:{K}:waiters     of each waiter, how to notify it
//	N:{K}:tombstones  cancelled owners
//
// The braces make all keys of a lock hash to one slot of a Cluster. All keys expire. Redis must not
// evict keys (maxmemory-policy noeviction): a lost record is a lost lock and a lost token.
//
// # Rights
//
// An ACL user needs ~<namespace>:* and +evalsha +eval +get +getex +set +setrange +pexpire +pttl
// +time +zadd +zrem +zrange +zscore +zcard +zremrangebyscore +hset +hget +hgetall +hdel. To be
// notified of handoffs and asks it also needs &<namespace>:* and +publish +subscribe. Without them
// waiters poll, and a holder learns of an ask when it renews. To list locks it also needs +scan. In a
// Cluster, go-redis itself also needs +cluster|slots +command.
//
// # Clients
//
// The driver has its own connections, with the options of the client: to the node of a
// *redis.Client, and to each node of a *redis.ClusterClient. A pool that the application has used
// up thus delays no call. Hooks of the client (AddHook), such as those for tracing, do not see
// these calls. Package tracing reports operations instead. The driver opens at most PoolSize
// connections to a node, usually one or two. It closes a connection when the context of its caller
// ends. Close the Locker before the client: the driver's connections do not end with the client.
//
// A client that follows Sentinels sends the calls itself while its pool has a free connection. A
// Cluster's client sends redirected calls, and a client of another type sends all calls. Calls that
// are ready at the same time share a round trip. docs/design/redis.md states the details.
//
// If an answer is lost, the driver sends the call again: MaxRetries times, in a Cluster MaxRedirects
// times. The error says whether a copy may have taken effect, see [driver.MayHaveEffect].
package redislock
