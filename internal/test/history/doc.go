// Package history checks whether the recorded operations of the clients of a session are possible: the
// linearizability checker porcupine compares the record with a model of the fenced log of a session, see
// [Check].
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
// Call is read before the operation can have an effect, and is recorded before the request is sent. Return
// is read after the answer. An interval that is too long hides a fault. One that is too short blames a right
// history. If an effect is not certain, the outcome is unknown. An Entry is the identity of one Save, or of
// all Saves with one Turn. A process that is started again needs another name.
//
// # Promises
//
// promise.go lists the clauses with their letters in docs/guarantees.md. A [Violation] has the name of the
// clause without which the history would be right. For each clause, the tests have histories that no other
// clause finds. A check that takes too long is no success, see [ErrUndecided].
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
//   - Histories with many times 10,000 operations: porcupine keeps a bit for each pair of them.
package history
