// Package lockedmemory makes the memory of an AI agent safe for many instances: it puts a lock per
// session in front of any [Memory].
//
//	memory, err := lockedmemory.New(inner, locker, lockedmemory.SessionKey, nil)
//	...
//	ctx = lockedmemory.WithSession(ctx, "conversation-42")
//	err = memory.Turn(ctx, func(ctx context.Context) error {
//		history, err := memory.Load(ctx, "") // no other instance writes until the turn ends
//		...
//		return memory.Save(ctx, question, answer)
//	})
//
// A lock around Save alone keeps writes apart, but two instances may still load the same history. A write
// outside a turn takes the lock for that write. Reads take no lock: outside a turn they may see a history
// that is about to grow. Answer is the turn of a chat service. docs/howto shows each task.
package lockedmemory
