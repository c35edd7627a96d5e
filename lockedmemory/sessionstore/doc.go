// Package sessionstore is a conversation memory for agents that run as many instances. It keeps every
// session in the order of its leases, stores the exchange of a message ID once, and refuses a writer whose
// lease is over, without a clock. docs/guarantees.md has the promises, docs/design/sessions.md the protocol.
//
// The packages redisstore, pgstore and memstore make a Store. A Store writes under a lease alone.
// lockedmemory.New, put in front of it, brings the lease:
//
//	store, err := redisstore.New(client, session, sessionstore.JSON[Message]{}, nil, nil)
//	memory, err := lockedmemory.New(store, locker, session, nil) // with the same KeyFunc
//	answer, err := memory.Answer(ctx, question.ID, question, func(ctx context.Context) ([]Message, error) {
//		history, err := memory.Load(ctx, "")
//		…
//		return model(ctx, history, question)
//	})
//
// # Errors
//
// Each call may fail with the error of an ended ctx, and with:
//
//	distlock.ErrNotHeld      a write without a lease, or the lease of another session
//	distlock.ErrLost         the lease is lost, or a [StaleError]: the store has seen a later holder
//	distlock.ErrInvalidKey   the KeyFunc does not know the session
//	distlock.ErrUnavailable  the service does not answer
//	distlock.ErrRefused      the service refuses
//	ErrDeleted               the session was deleted while the turn waited for it
//
// After these errors, the call has written nothing. Each method names its further errors. A write also fails
// with distlock.ErrOutcomeUnknown: it may have taken effect, or may later. docs/reference/errors.md says what
// to do. No error names a session, a message or an ID, unless the codec or the KeyFunc does.
//
// # Reads
//
// A read of several pages fails with [ErrChanged] if the history is cleared, replaced or trimmed between two
// of them. Calls that return all at once begin again before, 3 times. Each read may fail with an
// [EntryError]. No limit cuts a turn, and the newest turn is whole.
//
// Load holds its result, which Options.Window bounds. Search holds its results and one turn. Forward and
// Backward hold one page: at most 2,048 exchanges, and about 16 MiB or one exchange.
package sessionstore
