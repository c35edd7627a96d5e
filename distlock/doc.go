// Package distlock leases names across the processes that share a lock service, the backend: Redis
// (redislock), PostgreSQL (pglock), or the memory of one process (memlock). At most one lease of a
// name is held at a time. It is renewed while its holder lives, and its context ends before another
// can hold the lock:
//
//	locker, err := redislock.New(client, nil) // or lockurl.Open, with a URL
//	defer locker.Close(ctx)                   // releases what is held
//	err = locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
//		return work(ctx) // ctx ends when the lease does
//	})
//	lease, err := locker.Acquire(ctx, "conversation-42") // then lease.Release(ctx)
//
// That rests on time, and on the backend keeping a lock for its TTL. If these fail, a store that
// compares fencing tokens refuses an older holder: docs/guarantees.md.
package distlock
