// Package lockedmemory makes the memory of an AI agent safe for many instances: it puts a lock per
// session in front of any [Memory], such as Beluga AI's memory.Memory.
//
//		memory, err := lockedmemory.New(inner, locker, lockedmemory.SessionKey, nil)
//		...
//		ctx = lockedmemory.WithSession(ctx, "conversation-42")
//		err = memory.Turn(ctx, func(ctx context.Context) error {
//			history, err := memory.Load(ctx, "") // no other instance writes until the turn ends
//			...
//			return memory.Save(ctx, question, answer)
//		})
//
//	  - Turn runs a whole turn under one lease, from loading the history to saving the answer. A lock
//	    around Save alone keeps writes apart, but two instances may still load the same history.
//	  - Writes outside a turn take the lock for that one write: Save and Clear, and with a [SessionStore]
//	    Append, SaveOnce, Replace and Delete.
//	  - Reads take no lock: Load and Search, and with a SessionStore Answered, Last, Backward, Forward and
//	    Sessions. Outside a turn they may see a history that is about to grow.
//	  - Answer is the turn of a chat service: a message that is repeated is answered once.
//	  - SaveOnce stores the messages of an ID once. A Save has no ID: repeated, it is stored again.
//
// Without the lock nothing is written, see [LockedMemory.Save] for the errors. docs/howto shows
// each task.
package lockedmemory
