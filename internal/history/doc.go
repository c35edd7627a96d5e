// Package history records what the clients of a run were told, and checks whether that can have happened: with a linearizability checker,
// porcupine, against a model of the lease with expiry, [CheckLeases], and one of the fenced log of a session, [CheckSessions].
//
//	rec, err := history.Create(path, "instance-3")   // in each process; a process that is started again takes another name
//	…
//	h, err := rec.Acquire(ctx, locker, key)          // leases
//	h.Check()                                        // now and then, while work goes on
//	err = h.Release(ctx)
//	…
//	save := rec.Begin(history.Op{Kind: history.Save, Key: session, Fence: lease.Fence(), Entry: entry})
//	err = memory.Save(ctx, input, output)            // the input names its entry
//	save.End(func(o *history.Op) { o.Outcome = history.OK }) // if err is nil; otherwise its outcome is unknown
//	…
//	ops, err := history.ReadFiles(paths...)          // after all have ended
//	err = history.CheckLeases(ops, history.Options{}).Err()
//
// # What is recorded
//
//	kind      who                  what it means, by outcome
//	acquire   client               ok: it has a lease with this Fence. nothing: it has none. unknown: it may be granted one at any
//	                               later time, which ends by itself
//	release   client               it works no more from the call on. ok: the lease lived until this release ended it. gone: it had been lost
//	                               before. unknown: it ends some time
//	lost      client               the moment at which the context was seen to have ended with ErrLost; it was held at Alive
//	load      client               ok: Seen was the whole history, or its end if Most is not 0. stale: the store refused Fence. With
//	                               no Fence: outside of a turn
//	save      client               ok: stored, now or before under its Turn. stale, nothing, conflict: not stored, and never will
//	                               be. unknown: stored, now or later, or never. With no Fence: outside of a turn, under a token
//	                               that nobody was told
//	replace   client               ok: the history had Range, and has With in its place. Other outcomes are those of a save. nothing:
//	                               the range was missing, say; the store may have been shown the token
//	clear     client               ok: nothing is left. Other outcomes are those of a save
//	delete    client               as a clear; the turn IDs are forgotten, too. Of a turn that waited for it, all calls have the outcome
//	                               deleted: they have no effect
//	killed    who kills, before    any lease of Process may end from here on, and no call of its that has not returned ever does
//	stopped   who stops, before    any lease of Process may end from here on, before its holder is told, unless it was seen Alive later
//	forgot    who breaks servers   see below
//
// Times are those of [Now]. Call is read before anything of the operation can happen, and written to the file before it is sent;
// Return after the answer is there. An interval that is too long hides something; one that is too short blames a right history.
// When in doubt whether something has happened, its outcome is unknown. An Entry is the identity of one Save, or of all those with
// one Turn. [Recorder.Acquire] and [Recorder.Do] do all this for leases.
//
// Alive is when [distlock.Lease.Err] was last nil, by a clock that was read before it was asked. It bounds what is known about N: a
// notice that is late by less than the time between the last [Held.Check] and the notice is not found.
//
// # What a server forgets
//
// A Forgot says that a failover or restart between Call and Return lost something. Every lease that
// was granted before may then end without notice. Tokens still rise. Record Call before the server is
// killed, and Return after its successor serves. A master that goes on answering while its successor
// serves has no place in the model. Leave out the sessions that lost something.
//
// # What is checked
//
// The clauses are listed, with their letters in docs/semantics.md, in promise.go. A [Violation] is named by the clause without
// which the history would be right; every one has histories in the tests that only it catches. A check that takes too long is no
// success: the verdict's Err says so.
//
// What a caller cannot tell is judged to its favour. Between the grant and the record a process may be killed: that lease is
// unknown. A Save that is known by its turn ID may have shown its token or not. What was made outside of a turn has a token above
// all that were seen before it.
//
// # What is not
//
//   - A run shows what happened in it. A history that is right is no proof of the next one.
//   - Liveness: nothing says how long a call may take, or that a killed holder's lease ends only with its TTL.
//   - Sessions that expire or are trimmed. Search, and the reads of one turn ID.
//   - How many entries a Load of the last ones returns, as long as they are the end of the history.
//   - A lease whose token a store has raised, see fencing.RaiseToken, keeps the one it was granted in the history of leases.
//     In that of sessions, a call that was raised and whose outcome is unknown stands under the token it had before.
//   - What an unknown Save has done that no Load saw.
//   - Histories of one key with many times 10,000 operations: porcupine remembers a bit for each pair of them.
package history
