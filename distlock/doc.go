// Package distlock leases names across the processes that share a lock service, the backend.
//
// A [Locker] works over Redis (package redislock) or the memory of one process (package memlock). At
// most one lease of a name is held at a time. A lease is renewed while its holder lives, and its
// context ends before another client can hold the lock:
//
//	err := locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
//		return work(ctx) // ctx ends when the lease does
//	})
//
// That rests on time, and on the backend keeping a lock for its TTL. For the rest there is the
// fencing token of [Lease.Fence]: a store that compares tokens refuses the write of an older holder.
//
// Read on: docs/guide.md for tasks, docs/semantics.md for promises, docs/design/leases.md for states
// and protocols. Authors of stores use package fencing, authors of backends package driver.
package distlock
