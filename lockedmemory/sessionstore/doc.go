// Package sessionstore is a conversation memory for agents that run as many instances. It keeps every
// session in the order of its leases, stores the exchange of a message ID once, and refuses a writer
// whose lease is over, without a clock: each call has the fencing token of its lease, and tokens only rise.
//
// The packages redisstore, pgstore and memstore make a Store. A Store writes under a lease alone.
// lockedmemory.New, put in front of it, brings the lease:
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
// docs/howto/retries.md explains turns with several steps, and failures. docs/reference/configuration.md
// lists the options. docs/guarantees.md has the promises and their limits, docs/design/sessions.md the
// protocol.
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
// with distlock.ErrOutcomeUnknown: it may have taken effect, or may later. Then repeat an Answer or SaveOnce
// with its ID. After another write, load the history in a new turn. docs/reference/errors.md says what to do
// for each error. No error names a session, a message or an ID, unless the codec or the KeyFunc does.
//
// # Memory of the process
//
// Load holds its result, which Options.Window bounds. Search holds its results and one turn.
// [Store.Forward] holds one page: at most 2,048 exchanges, and about 16 MiB or one exchange.
package sessionstore
