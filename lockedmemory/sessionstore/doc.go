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
//	err = memory.Turn(lockedmemory.WithTurnID(ctx, question.ID), func(ctx context.Context) error {
//		history, err := memory.Load(ctx, "") // from here on, every older lease is refused
//		if err != nil {
//			return err
//		}
//		answer, err := model(ctx, history, question)
//		if err != nil {
//			return err
//		}
//		return memory.Save(ctx, question, answer)
//	})
//
// docs/turns.md goes through that loop, and through what can happen in it.
//
// # What holds
//
//   - The Saves of a session stand in the order in which their leases were granted, and those under one lease in the order in which
//     they were made.
//   - All messages of an exchange are stored, next to each other, or none.
//   - A store that was shown a token refuses every lower one from then on. The first access under a lease shows it, Load included.
//   - What was written under a lease that was granted before that of a Clear does not stand there after the Clear.
//   - Each Save of a turn with an ID is stored once, for Options.RememberTurns, also through Clear
//     and trimming. A repeated turn goes on after its last stored Save.
//   - Limits do not cut a turn: Load, Search and Exchanges show whole turns, and trimming keeps
//     whole turns.
//   - A turn whose history expires is not continued: its next Save fails with [ErrGone].
//
// Acknowledged exchanges stay, as far as the service retains them, until Clear,
// Options.MaxExchanges or Options.IdleTTL takes them away. Several Saves in a turn are several: a
// crash leaves those that were made. docs/semantics.md has the promises and their limits, under the
// letters O and S2; the tests of package storetest bear these letters. docs/design/sessions.md has
// the protocol.
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
// which is distlock.ErrLost, and with [ErrTurnConflict], [ErrGone], lockedmemory.ErrTurnID,
// [ErrTooLarge], [ErrCodec], distlock.ErrInvalidKey and distlock.ErrNotHeld. Load, Search and
// Exchanges never fail with distlock.ErrOutcomeUnknown.
//
// An entry that cannot be read ends Load, Search and Exchanges with an [EntryError], which matches
// [ErrBroken] and names the place. With Options.Broken set to [Skip], they leave the entry out and
// log its place.
//
// No error names a session, a message or a turn ID, except what the codec or the KeyFunc says itself.
//
// # Memory
//
// Without Options, saved exchanges are kept for ever. Options.IdleTTL is how long an unused session
// stays. Choose a longer time than the longest turn takes: when a session expires within a turn,
// the turn cannot save. Options.MaxExchanges bounds the length of a session, MaxMessage the size of
// a message, RememberTurns how long turn IDs stay. A session without an exchange is removed after
// 24 hours.
//
// Load holds in memory what it returns, as Window bounds it. [Store.Exchanges] holds a page: at
// most 2,048 exchanges, and about 16 MiB or one exchange.
//
// # The codec
//
// A [Codec] turns messages into bytes and back. It is the application's, and what it must keep is this:
//
//   - Decode gives back what Encode was given, as far as the application cares.
//   - Encode gives the same bytes for the same message each time, in every process and version: a
//     repeated Save of a turn ID is the same if its bytes are. A map that is written in random
//     order, or a time at which it was encoded, makes each retry an ErrTurnConflict.
//   - Decode fails for what Encode cannot have given. What it lets pass is taken for a message.
//   - Entries outlive versions of the program: a codec has to read what its predecessors have written.
//
// [JSON] is a codec for plain structs.
package sessionstore
