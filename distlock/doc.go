// Package distlock leases names across the processes that share a lock service, the backend: Redis
// (redislock), PostgreSQL (pglock), or the memory of one process (memlock). At most one lease of a
// name is held at a time. It is renewed while its holder lives, and its context ends before another
// can hold the lock:
//
//	err := locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
//		return work(ctx) // ctx ends when the lease does
//	})
//
// That rests on time, and on the backend keeping a lock for its TTL. Where these fail, a store that
// compares fencing tokens, see [Lease.Fence], refuses an older holder.
//
// Read on: docs/howto for tasks, docs/guarantees.md for promises, docs/design for protocols.
package distlock
