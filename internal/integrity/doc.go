// Package integrity judges a stored conversation: given what stands in the store, and what those who wrote it were told,
// it names what went wrong, and where.
//
// A conversation is made of turns: a question of a user and the answer to it, which one Save stores. It is right if
//
//   - every turn that was acknowledged is stored, question and answer (otherwise it is [Lost]),
//   - every answer stands right after its own question (otherwise the turn is [Torn]),
//   - no turn is stored more than once (otherwise it is [Doubled]),
//   - what a writer began after another of its turns was acknowledged stands behind that one (otherwise it is
//     [OutOfOrder]),
//   - every answer was written by somebody who had seen all that stands before its question (otherwise it is [Stale]).
//
// A turn of which nobody knows whether it was stored, because the writer died or its Save failed half-way, may be missing or
// stand there; what does stand there has to be right in every other way. So a right conversation is never blamed, whatever
// was not acknowledged.
//
// One turn may be wrong in several ways: of two turns that were written into each other, both are torn and one is likely to
// be stale. Damage also spreads: who answers after a turn was lost has seen more than stands there now, and is stale.
//
// The package knows of no store. A harness reads the store and fills in [Message] and [Attempt]; a conversation from which
// old messages were trimmed, or which was cleared, cannot be judged.
package integrity
