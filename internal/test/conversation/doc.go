// Package integrity judges a stored conversation. It compares the stored messages with the answers that
// the writers got, and names each fault and its place.
//
// A conversation is made of turns: the question of a user and the answer to it, which one Save
// stores. It is right if
//
//   - every acknowledged turn is stored, question and answer (otherwise it is [Lost]),
//   - every answer stands right after its own question (otherwise the turn is [Torn]),
//   - no turn is stored more than once (otherwise it is [Doubled]),
//   - a turn that a writer began after the acknowledgement of an earlier one stands behind that one
//     (otherwise it is [OutOfOrder]),
//   - the writer of every answer had seen all messages before its question (otherwise it is [Stale]).
//
// A turn has an unknown outcome if its writer died, or if its Save failed half-way. It may be
// missing. If it is stored, it has to be right in every other way. So a right conversation is never
// blamed, also if some of its turns were not acknowledged.
//
// One turn may be wrong in several ways. If two turns were written into each other, both are torn, and
// one is likely to be stale. Damage also spreads: the writer of an answer after a lost turn has
// seen more than is stored now, so its answer is stale.
//
// The package knows no store. A harness reads the store and fills in [Message] and [Attempt]. A
// conversation that was cleared or trimmed cannot be judged.
package conversation
