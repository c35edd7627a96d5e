// Package belugamemory gives applications of Beluga AI v2 a conversation memory that many instances
// share, by an import and a name:
//
//	import _ "github.com/belugalock/belugalock/lockedmemory/belugamemory"
//
//	mem, err := memory.New("locked", config.ProviderConfig{BaseURL: "redis://localhost:6379"})
//	defer mem.(*belugamemory.Memory).Close(ctx)
//	ctx = core.WithSessionID(ctx, "conversation-42")
//	err = mem.(*belugamemory.Memory).Turn(ctx, func(ctx context.Context) error {
//		history, err := mem.Load(ctx, "") // no other instance writes until the turn ends
//		…
//		return mem.Save(ctx, question, answer)
//	})
//
// Save and Clear run under the lock of the context's session, see [SessionKey]. [Memory.Turn] runs a whole
// turn, from Load to Save, under one lease. [Memory.Answer] answers a repeated message once. Package
// sessionstore stores the messages and refuses outdated writers. [Wrap] puts the lock in front of another
// memory. Package belugarunner has the sessions and runs of a Runner.
//
// # The configuration of "locked"
//
// BaseURL names the server of the locks and the sessions, see lockurl.OpenDriver; mem:// is this
// process. The option store names another server for the sessions. A quorum needs it: it keeps locks
// alone. A PostgreSQL has the schemas of pglock.Migrate and pgstore.Migrate. Timeout bounds the
// wait of memory.New for the server, by default 5 s. An APIKey is refused. Provider and Model have
// no effect. docs/reference/beluga.md has values and defaults of the Options. All but observer may come from
// JSON:
//
//	busy, idle_ttl, interruptible, max_exchanges, max_hold, namespace, observer, session_id, store, ttl, wait,
//	window
//
// # Errors
//
// Errors of locks and of the session store are core.Errors, and errors.Is finds the sentinels of
// distlock and sessionstore in them. Errors of an inner memory, of the function of a Turn, and of a
// context that the caller has cancelled are returned unchanged.
//
//	core.ErrTimeout        the session is busy; nothing was done; retry later
//	core.ErrProviderDown   the lock service or the store is down, or refuses; a retry is safe
//	core.ErrAuth           the password is wrong, or the user lacks a right; nothing was done
//	core.ErrNotFound       the session was deleted or has expired
//	ErrOutcomeUnknown      a write without an ID got no answer: a retry could do it twice
//	ErrLockLost            the lease was lost: repeat the turn
//	ErrInterrupted         a Stop or an Interrupt has ended the turn, or the message is stopped
//	ErrShuttingDown        the memory was closed: ask another instance
//	core.ErrInvalidInput   every other error; the text says what to change
//
// [Retryable] is true for the first two. docs/reference/errors.md lists the sentinels of each code.
package belugamemory
