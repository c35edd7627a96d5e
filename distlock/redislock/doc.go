// Package redislock keeps locks in Redis: on one node, behind Sentinels, or in a Cluster, by the
// client that go-redis makes for it.
//
// Redis keeps one record per name, which outlives the lock by a day, and beside it a queue and
// tombstones while they are needed. Every operation is one script, so it happens at one moment, by
// the server's clock, and may be repeated. docs/design/redis.md states the record, its invariants,
// the operations and the states of an owner.
//
// For a lock with the key K in the namespace N, K with '%' and '}' written as %25 and %7D, so that
// two names never meet:
//
//	N:{K}:lock        the record: holder, previous owner, token; expires a day after the lock
//	N:{K}:queue       waiters by ticket (sorted set)
//	N:{K}:waiters     "<alive until, ms>:<seq>:<channel>:<payload>" of each waiter (hash)
//	N:{K}:tombstones  cancelled owners, by the end of their tombstones, ms (sorted set)
//
// The braces make all keys of a lock hash to one slot of a Cluster. All keys expire. Redis must not
// evict keys (maxmemory-policy noeviction): a lost record is a lost lock and a lost token.
//
// # Rights
//
// An ACL user needs ~<namespace>:* and +evalsha +eval +get +getex +set +setrange +pexpire +pttl
// +time +zadd +zrem +zrange +zscore +zcard +zremrangebyscore +hset +hget +hgetall +hdel. To be notified
// of handoffs it also needs &<namespace>:* and +publish +subscribe; without, waiters poll. To list
// locks it also needs +scan. In a Cluster, go-redis itself also needs +cluster|slots +command.
//
// # Clients
//
// The driver has connections of its own, with the options of the client: to the node of a *redis.Client,
// and to each node of a *redis.ClusterClient. So a pool that the application has used up delays no call.
// Hooks of the client (AddHook), as those that trace commands, do not see these calls. package tracing
// reports operations instead. There are at most PoolSize connections to a node, usually one or two. A
// connection is closed after a minute without use, and when the context of its caller ends.
//
// The client itself sends what a node of a Cluster redirects, and the first calls, before it knows the
// nodes. A client that follows Sentinels sends the calls as long as its pool has a free connection,
// because it alone learns of a failover. A client of another type sends all calls. Close the Locker
// before the client: its own connections do not end with the client. docs/design/redis.md states the
// details.
//
// go-redis writes one copy of a script call, unless the server has rejected that copy. If the answer
// is lost, or the server rejects the call for now, the driver sends the call again: MaxRetries times,
// MaxRedirects in a Cluster. So the error says whether a copy may have taken effect, see
// [driver.MayHaveEffect]. An extend is sent once: a late copy of an extend that shortens could undo a
// later one.
package redislock
