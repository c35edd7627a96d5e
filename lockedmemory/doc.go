// Package lockedmemory makes the memory of an AI agent safe for many instances: a decorator that gives any memory a
// lock per session.
//
// A memory here is anything with the four methods of [Memory]; Beluga AI's memory.Memory is one, and so is what [New]
// returns for it. The decorator knows the session from a [KeyFunc] and does this:
//
//   - Save and Clear run under the session's lock, which is renewed as long as they take.
//   - Turn runs a whole turn, from loading the history to saving the answer, under one lease. A lock around Save
//     alone keeps writes apart, but two instances may still have loaded the same history: use Turn where a turn is
//     more than a Save. A Turn of a busy session waits in the queue, or, with the policy [Refuse], fails at
//     once. Everything inside uses the context that its function is given.
//   - Load and Search take no lock. Inside a Turn they need none; outside they may see a history that is about to grow.
//
// A turn can be given an ID with [WithTurnID], which numbers its Saves. A store that knows of IDs stores
// each number once, however often the Save is repeated.
//
// If the lock service is down, Save, Clear and Turn fail with distlock.ErrUnavailable, and if it
// refuses, with distlock.ErrRefused: nothing is written. If a lease is lost while they run, their
// context is cancelled and they fail with distlock.ErrLost. A Save or Clear then also matches
// distlock.ErrOutcomeUnknown, unless the inner memory says that nothing was written: the write may
// be there, beside the writes of the next holder.
package lockedmemory
