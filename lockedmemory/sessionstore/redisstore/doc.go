// Package redisstore keeps sessions in Redis 6.2 or newer: on one node, behind Sentinels, or in a
// Cluster, through the client that the caller makes for it. [New] takes that client, [Open] a URL.
// Package sessionstore states the contract of its stores.
//
// A session is a Stream, which takes rising IDs alone. The ID of an entry begins with the fencing token
// of its lease. So Redis itself refuses an older writer, keeps the order and keeps an exchange whole.
// docs/design/sessions.md states the keys, the scripts and the reasons.
//
// # One client for lock and store
//
// Give [New] the same client as redislock.New. Then the scripts ask the lock for its owner where a
// session has no log. The same address with another client does not suffice. With two clients, the
// mark alone refuses older tokens: for 24 hours after a session has expired. lockedmemory.New refuses
// a Locker whose locks are in this process alone.
//
// # Keys
//
// The keys of the session K in the store's namespace N ("session" by default). In K, '%' and '}' are
// written as %25 and %7D:
//
//	N:{K}:log    the exchanges; lives for Retention.IdleTTL after the last use, by default for ever
//	N:{K}:mark   the highest token that the session has seen; lives for 24 hours longer than the log
//	N:{K}:ids    hashes of message IDs; lives for Retention.RememberIDs, and up to 1/32 longer
//	N:{K}:stage  a new log, while a Replace copies it; lives for 60 s after a step
//	N:{K}:inbox  questions that are pending; lives for 24 hours after the last Put
//	N:inboxes    the sessions that may have an inbox; lives for 25 hours after the last Put
//
// To remove a session, use Delete. By hand, remove its log and leave the mark: it refuses older holders.
//
// # Settings and sizes
//
// Set maxmemory-policy to noeviction: with another policy Redis may evict sessions, IDs and locks.
// Set lazyfree-lazy-expire to yes: otherwise Redis blocks while it frees a long session that has expired.
// Ping of the store advises on both. docs/operations/deploy.md has the other settings, and what a
// failover can lose.
//
// A session without an exchange costs some 200 B for 24 hours. An ID costs up to 130 B until it
// expires.
//
// # Rights
//
// An ACL user needs ~<namespace>:* of the store and, for sessions, +evalsha +eval +time +get +set
// +exists +pexpire +pttl +persist +unlink +rename +xadd +xlen +xrange +xrevrange +xdel +xtrim +xinfo|stream
// +hget +hset +hdel +hrandfield +zadd +zrange +zremrangebyscore; with one client for both, also what
// package redislock lists for the lock. To list sessions it also needs +scan, for Inboxes +zscan, and for
// the advice of Ping +config|get. In a Cluster, go-redis itself also needs +cluster|slots +command.
//
// # miniredis
//
// Tests of an application can use miniredis once its clock is set to run, see Miniredis.ClockTTL. It
// knows no rights, no replicas and no eviction: passing tests are no evidence about Redis.
package redisstore
