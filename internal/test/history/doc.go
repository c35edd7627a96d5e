// Package history records the operations of the clients of a session and their outcomes. It checks
// whether the record is possible: the linearizability checker porcupine compares the record with a model of
// the fenced log of a session, see [CheckSessions].
//
//	rec, err := history.Create(path, "instance-3")   // in each process; a restarted process has a new name
//	…
//	save := rec.Begin(history.Op{Kind: history.Save, Key: session, Fence: lease.Fence(), Entry: entry})
//	err = memory.Save(ctx, input, output)            // the input names its entry
//	save.End(func(o *history.Op) { o.Outcome = history.OK }) // if err is nil; otherwise the outcome is unknown
//	…
//	ops, err := history.ReadFiles(paths...)          // after all processes have ended
//	err = history.CheckSessions(ops, history.Options{}).Err()
//
// # Records
//
// The client records its calls, and these outcomes:
//
//	load      ok       Seen was the whole history. If Most is not 0: the end of the history
//	save      ok       the entry is stored, now or before under its Turn
//	          conflict, nothing, stale, deleted: the call stores nothing, now or later
//	          unknown  it may be stored now, later or never
//	replace   ok       the history had Range, and has With in its place
//	          nothing  the range was missing, say. The store may have been shown the token
//	clear     ok       nothing is left
//	delete    ok       nothing is left, and the turn IDs are no longer known
//
// Other outcomes of a load, replace, clear or delete are those of a save. Without a Fence, the call was
// made outside a turn, and a write had a token that its client does not know. The store refuses a stale
// Fence. It refuses a turn that waited for a Delete as deleted.
//
// Times are those of [Now]. Call is read before the operation can have an effect, and is in the file before
// the request is sent. Return is read after the answer. An interval that is too long hides a fault. One that
// is too short blames a right history. If an effect is not certain, the outcome is unknown. An Entry is the
// identity of one Save, or of all Saves with one Turn.
//
// # Promises
//
// promise.go lists the clauses with their letters in docs/guarantees.md. A [Violation] has the name of the
// clause without which the history would be right. For each clause, the tests have histories that no other
// clause finds. A check that takes too long is no success: Err of the verdict says so.
//
// If a client cannot know a fact, the model takes the possibility that is right. A Save that is known by
// its turn ID may have shown its token or not. A write outside a turn has a token above all tokens seen
// before it.
//
// # Limits
//
//   - A run shows its own operations. A right history is no proof of the next one.
//   - Liveness: no clause bounds the time of a call.
//   - Sessions of servers that have lost data.
//   - Sessions that expire or are trimmed. Search, and the reads of one turn ID.
//   - How many entries a Load of the last ones returns, as long as they are the end of the history.
//   - A call of unknown outcome has the token from before a store has raised it, see fencing.RaiseToken.
//   - Effects of an unknown Save that no Load has shown.
//   - Histories of one key with many times 10,000 operations: porcupine keeps a bit for each pair of them.
package history
