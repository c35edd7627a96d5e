// Package sessionstore is a conversation memory for agents that run as many instances: it keeps every session in the order of its
// leases, stores a repeated Save once, and refuses a writer whose lease is over, by itself, without a clock.
//
// A lock keeps two turns apart as long as its holder notices that it has lost it. One that was paused does not: it wakes up, and
// writes. Only the memory can refuse that write. So a [Store] is given the fencing token of the lease that each call runs under, and
// the token is the place of what the call writes: tokens rise with every lease, places may only rise, and a late write has no place.
//
// A Store writes under a lease alone. lockedmemory.New, put in front of it, brings the lease:
//
//	store, err := redisstore.New(client, session, sessionstore.JSON[Message]{}, nil)
//	…
//	memory, err := lockedmemory.New(store, locker, session, nil) // with the same KeyFunc
//	…
//	err = memory.Turn(ctx, func(ctx context.Context) error {
//		history, err := memory.Load(ctx, "") // from here on, every older lease is refused
//		if err != nil {
//			return err
//		}
//		answer, err := model(ctx, history, question)
//		if err != nil {
//			return err
//		}
//		return memory.Save(lockedmemory.WithTurnID(ctx, question.ID), question, answer)
//	})
//
// docs/turns.md goes through that loop, and through what can happen in it.
//
// # What holds
//
//   - The Saves of a session stand in the order in which their leases were granted, and those under one lease in the order in which
//     they were made.
//   - Both messages of a Save are stored, next to each other, or none.
//   - A store that was shown a token refuses every lower one from then on. The first access under a lease shows it, Load included.
//   - What was written under a lease that was granted before that of a Clear does not stand there after the Clear.
//   - A Save that is repeated under its turn ID is stored once, for Options.RememberTurns, also through Clear and trimming.
//
// What was acknowledged stays, as far as the service retains it, until Clear, Options.MaxExchanges or Options.IdleTTL takes it away. Several
// Saves in a turn are several: a crash leaves those that were made. docs/semantics.md says all of this exactly, with its limits, under
// the letters O and S2; the tests of package storetest bear these letters.
//
// # Errors
//
// The type of an error says what became of a Save or a Clear. Test it with errors.Is, and never
// look for words in the text:
//
//	distlock.ErrOutcomeUnknown   may have been written, or may be later: repeat the turn with the same turn ID;
//	                             a Load in the next turn shows the outcome
//	distlock.ErrUnavailable      nothing was written: the service does not answer, or rejects calls
//	                             for now; try again later
//	distlock.ErrRefused          nothing was written: a right is missing, memory is used up, or data of another
//	                             program has the name; an operator must change what the text names
//	the error of ctx             nothing was written, unless it comes with distlock.ErrOutcomeUnknown
//
// An error matches at most one of the first three. Nothing was written with [StaleError] either,
// which is distlock.ErrLost, and with [ErrTurnConflict], [ErrGone], lockedmemory.ErrTurnID, [ErrTooLarge], [ErrCodec],
// distlock.ErrInvalidKey and distlock.ErrNotHeld. Load, Search and Exchanges never fail with
// distlock.ErrOutcomeUnknown.
//
// An entry that cannot be read does not hide the others: Load and Search return those together with [EntryErrors], which match
// [ErrBroken] and name the place of each.
//
// No error names a session, a message or a turn ID, except what the codec or the KeyFunc says itself.
//
// # Memory
//
// Without Options nothing that was saved goes away. Options.IdleTTL bounds how long a session stays that nobody uses; it has to be longer than the
// longest turn, because a session that expires within one is empty then. Options.MaxExchanges bounds its length, MaxMessage the size of
// a message, RememberTurns how long its turn IDs stay. Load holds in memory what it returns, as Window bounds it; [Store.Exchanges] holds a page.
//
// # The codec
//
// A [Codec] turns messages into bytes and back. It is the application's, and what it must keep is this:
//
//   - Decode gives back what Encode was given, as far as the application cares.
//   - Encode gives the same bytes for the same message each time, in every process and version: two Saves under one turn ID are the same if
//     their bytes are. A map that is written in random order, or a time at which it was encoded, makes each retry an ErrTurnConflict.
//   - Decode fails for what Encode cannot have given. What it lets pass is taken for a message.
//   - Entries outlive versions of the program: a codec has to read what its predecessors have written.
//
// [JSON] is a codec for plain structs.
package sessionstore
