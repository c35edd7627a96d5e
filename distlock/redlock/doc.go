// Package redlock keeps a lock on several independent Redis servers, the nodes. The lock survives the
// loss of a minority of the nodes, and its fencing tokens rise. Use an odd number of nodes, at least 3,
// without replication between them.
//
// A grant needs a quorum: more than half of the nodes. docs/design/redlock.md states the protocol, and
// what a restart, a step of a clock or FLUSHALL of a node means. docs/howto/redlock.md says when another
// backend is the better choice.
//
// A lock with the key K in the namespace N has these keys on each node. In K, '%' and '}' are written
// as %25 and %7D:
//
//	N:{K}:lock             the record: holder, token; expires a day after the lock
//	N:{K}:tombstone:OWNER  a cancelled owner of this node, until no late request of it can arrive
//
// The record has another format than that of package redislock. Each package refuses the records of
// the other one as foreign data. Redis must not evict keys (maxmemory-policy noeviction): a lost record
// is a lost token.
//
// # Rights
//
// An ACL user needs on each node ~<namespace>:* and +evalsha +eval +get +getex +set +pexpire +pttl
// +time +info. To be notified of free locks it also needs &<namespace>:* and +publish +subscribe.
// Without them waiters poll.
//
// The driver asks each new connection by INFO server since when its server is up, and whether the
// server is that of another node.
package redlock
