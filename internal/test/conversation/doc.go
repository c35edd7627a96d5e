// Package conversation judges a stored conversation by what its writers were told, and names each
// fault and its place. A turn is a question and its answer, which one Save stores. A conversation
// is right if
//
//   - every acknowledged turn is stored, question and answer (otherwise it is [Lost]),
//   - every answer stands right after its own question ([Torn]),
//   - no turn is stored more than once ([Doubled]),
//   - a turn that a writer began after the acknowledgement of an earlier one stands behind that one
//     ([OutOfOrder]),
//   - the writer of every answer had seen all messages before its question ([Stale]).
//
// A turn of unknown outcome may be missing. One turn may be wrong in several ways, and damage
// spreads: the writer of an answer after a lost turn has seen more than is stored now. A cleared or
// trimmed conversation cannot be judged.
package conversation
