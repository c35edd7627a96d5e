// Package sessionstore is a conversation memory for agents that run as many instances. It keeps every
// session in the order of its leases, stores a repeated Save with a turn ID once, and refuses a writer
// whose lease is over, without a clock.
//
// A lock keeps two turns apart as long as its holder notices a lost lease. A paused holder does not: it
// wakes up and writes. Only the memory can refuse that write. So each call of a [Store] has the fencing
// token of its lease, and the token begins the place of each exchange. Tokens rise with every lease and
// places only rise, so a late write has no place.
//
// A Store writes under a lease alone. lockedmemory.New, put in front of it, brings the lease:
//
//	store, err := redisstore.New(client, session, sessionstore.JSON[Message]{}, nil, nil)
//	…
//	memory, err := lockedmemory.New(store, locker, session, nil) // with the same KeyFunc
//	…
//	answer, err := memory.Answer(ctx, question.ID, question, func(ctx context.Context) ([]Message, error) {
//		history, err := memory.Load(ctx, "")
//		if err != nil {
//			return nil, err
//		}
//		return model(ctx, history, question)
//	})
//
// Answer is a turn with the ID of the question. For a turn with several Saves, give the ID to the
// Turn, see lockedmemory.WithTurnID. docs/howto/retries.md explains both, and their failures.
//
// # What holds
//
//   - The Saves of a session stand in the order in which their leases were granted. Saves under one
//     lease stand in the order in which they were made.
//   - All messages of an exchange are stored, next to each other, or none.
//   - After a store was shown a token, it refuses every lower one. The first access under a lease, also
//     a Load, shows the token.
//   - After a Clear, the session has no exchange of a lease that was granted before the Clear's lease.
//   - Each Save of a turn with an ID is (ID, number), and is stored once, for Retention.RememberTurns,
//     also through Clear and trimming. A repeated turn goes on after its highest stored number.
//   - A [Store.Replace] is one step: a crash leaves the history before or after it, and readers see no
//     mixture. Of what it and Clear remove, the service keeps no text.
//   - After a [Store.Delete], the service keeps no text of the session. A turn whose wait began before the
//     Delete fails with [ErrDeleted], and a later turn begins the session anew.
//   - Limits do not cut a turn: Load, Search and Forward show whole turns, and trimming keeps
//     whole turns.
//   - A turn whose history expires is not continued: its next Save fails with [ErrGone].
//
// Acknowledged exchanges stay, as far as the service retains them, until Clear,
// or a limit of Retention takes them away. Several Saves in a turn are several: a
// crash leaves those that were made. docs/guarantees.md has the promises and their limits, under the
// letters O and S2; the tests of package storetest bear these letters. docs/design/sessions.md has
// the protocol.
//
// # Errors
//
// The type of an error names the outcome of a Save, a Clear or a Replace. Test it with errors.Is, and
// never look for words in the text:
//
//	distlock.ErrOutcomeUnknown   may have been written, or may be later: repeat the Save with the same ID, or
//	                             begin a new turn: its Load shows the outcome, so do not store that again
//	distlock.ErrUnavailable      nothing was written: the service does not answer, or rejects calls
//	                             for now; try again later
//	distlock.ErrRefused          nothing was written: a right is missing, memory is used up, or data of another
//	                             program has the name; an operator must change what the text names
//	the error of ctx             nothing was written, unless it comes with distlock.ErrOutcomeUnknown
//
// An error matches at most one of the first three. Nothing was written with [StaleError] either,
// which is distlock.ErrLost, and with [ErrTurnConflict], [ErrGone], [ErrDeleted], [ErrRange],
// lockedmemory.ErrTurnID, [ErrTooLarge], [ErrCodec], distlock.ErrInvalidKey and
// distlock.ErrNotHeld. Load, Search and Forward never fail with distlock.ErrOutcomeUnknown.
//
// An entry that cannot be read ends Load, Search and Forward with an [EntryError], which matches
// [ErrBroken] and names the place. With Options.SkipBroken, they leave the entry out and log its
// place.
//
// No error names a session, a message or a turn ID, unless the codec or the KeyFunc does.
//
// # Memory
//
// By default, saved exchanges are kept for ever. Retention.IdleTTL is how long an unused session
// stays. Choose a longer time than the longest turn takes: when a session expires within a turn,
// the turn cannot save. Retention.MaxExchanges bounds the length of a session, MaxBytes its memory, MaxAge
// the age of its exchanges, RememberTurns how long turn IDs stay. Options.MaxMessage bounds the size of a
// message. A session without an exchange is removed after 24 hours.
//
// Load holds its result in memory; Window bounds that. [Store.Forward] holds one page: at most
// 2,048 exchanges, and about 16 MiB or one exchange. With Retention.MaxExchanges it also holds one turn
// while it looks for the oldest turn. Search holds its results and one turn.
//
// # The codec
//
// A [Codec] turns messages into bytes and back. The application brings it, and it must keep these rules:
//
//   - Decode returns the message that Encode was given, as far as the application cares.
//   - Encode gives the same bytes for the same message each time, in every process and version: a
//     repeated Save of a turn ID is the same if its bytes are. A map that is written in random
//     order, or a time at which it was encoded, makes each retry an ErrTurnConflict.
//   - Decode fails for bytes that Encode cannot have returned. The store takes all others for a message.
//   - Entries outlive versions of the program: a codec must read the bytes of its predecessors.
//
// [JSON] is a codec for plain structs.
package sessionstore
