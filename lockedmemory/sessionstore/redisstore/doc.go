// Package redisstore keeps sessions in Redis 6.2 or newer: on one node, behind Sentinels, or in a
// Cluster, through the client that the caller makes for it. Package sessionstore states the contract
// of its stores. docs/design/sessions.md states the protocol: the states of a session, turn IDs,
// limits, and the reasons.
//
// # Keys
//
// The keys of the session K in the store's namespace N ("session" by default). In K, '%' and '}' are
// written as %25 and %7D:
//
//	N:{K}:log   the exchanges (Stream); lives for Retention.IdleTTL after the last use, by default for ever
//	N:{K}:mark  the highest token that the session has seen (string); lives for 24 hours longer than the
//	            log, or for 24 hours in a session without an exchange
//	N:{K}:ids   the turn IDs (hash): by 16 bytes of the SHA-256 of each, until when it is known, and the
//	            digest and place of each exchange; lives for Retention.RememberTurns after the last named
//	            Save, and up to 1/32 longer
//	N:{K}:stage the log as it will be (Stream), while a Replace copies it; lives for 60 s after a step
//
// The lock's keys begin with <the Locker's namespace>:{K}: and share one slot of a Cluster with these.
//
// An entry of the log stands at <fencing token>-<n × 1,000,000>, the n-th write under that lease:
//
//	op <32 hexadecimal digits> m <message> … [id <turn ID> no <number>]  a Save
//	mark ""                                                              a marker, n is 0
//	swap <op>                                                            a marker of a Replace or a Clear
//
// Readers report any other entry as broken, and leave it as it is.
//
// A Stream takes rising IDs alone. So Redis itself refuses an older writer, keeps the order and keeps
// an exchange whole. A Save is a bare XADD if it is not the first access under its lease and has no
// turn ID. All other calls under a lease are scripts.
//
// # Scripts
//
//	script  effect                                         repeated
//	load    raises the mark; a marker at the log's end     the same again
//	append  adds an exchange, and its turn ID              the op tells a copy: the same again
//	stage   copies a part of the log to the key stage      a copy is refused: the staging begins anew
//	swap    raises the mark, removes the log, renames      the op tells a copy, until a write follows: refused
//	        the key stage, if that is not a Clear
//	stored  reads the exchanges of a turn ID               the same again
//
// Each script is one step. If a command after the first write fails for want of a right, the reply is
// the error WRITTEN with the text of Redis: the outcome of the call is unknown. Every other error of a
// script means that nothing was written.
//
// The first Load of a turn is one pipeline: the script, then the reading. Later ones only read.
//
// # One client for lock and store
//
// Give [New] the same client as redislock.New. Then the scripts ask the lock for its owner where a
// session has no log. The same address with another client does not suffice. With two clients, the
// mark alone refuses older tokens: for 24 hours after a session has expired. lockedmemory.New refuses
// a Locker whose locks are in this process alone.
//
// # Memory
//
// Set maxmemory-policy to noeviction: with another policy Redis may evict sessions, turn IDs and locks.
// Set lazyfree-lazy-expire to yes: otherwise Redis blocks while it frees a long session that has expired.
// Ping of the store advises on both settings.
// appendfsync and replication decide how much a restart or a failover loses. It loses exchanges from
// the end, with their turn IDs: order and exchanges stay whole.
//
// A session without an exchange costs some 200 B for 24 hours: a turn that only loads, a Clear, a
// probed session ID. A turn ID costs up to 140 B until it expires, and 45 B more for each exchange after
// its first. One new turn ID in 8 looks at 32 others of its session and removes those that have expired.
// Redis keeps Retention.MaxExchanges exchanges and those of the last turn. The first access of a lease
// trims, at most 100 exchanges or 1 MB, and the rest of a turn.
//
// Retention.MaxBytes bounds what MEMORY USAGE counts of the log. Redis frees the removed exchanges when a
// node of the Stream is empty, so a log may have 8 KB more or less (2 × stream-node-max-bytes). The first
// access of a lease has Redis add up the nodes, one for each 2,048 bytes of MaxBytes at most.
//
// To remove a session by hand, remove its log and leave the mark: it refuses older holders.
//
// # Rights
//
// An ACL user needs ~<namespace>:* of the store and, for sessions, +evalsha +eval +time +get +set
// +exists +pexpire +pttl +persist +unlink +rename +xadd +xlen +xrange +xrevrange +xdel +xtrim +xinfo|stream
// +hget +hset +hdel +hrandfield; with one client for both, also what package redislock lists for the
// lock. With Retention.MaxBytes it also needs +memory|usage. To list sessions it also needs +scan, and
// for the advice of Ping +config|get. In a Cluster, go-redis itself also needs +cluster|slots +command.
//
// # miniredis
//
// Tests of an application can use miniredis. It runs these scripts, and passes the tests of package
// storetest once its clock is set to run, see Miniredis.ClockTTL. It knows no rights, no replicas and
// no eviction: passing tests are no evidence about Redis.
package redisstore
