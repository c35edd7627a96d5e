// Package belugamemory brings conversation memory that many instances share to applications of Beluga AI v2, by the import of this package and
// a name:
//
//	import _ "github.com/belugalock/belugalock/lockedmemory/belugamemory"
//
//	mem, err := memory.New("locked", config.ProviderConfig{BaseURL: "redis://localhost:6379"})
//
// Save and Clear run under a lock of their session, and [Turn] runs a whole turn, from Load to Save, under one lease. The session is that of the
// context, see [SessionKey]. Package sessionstore stores the messages and refuses outdated writers.
//
// [Middleware] and [Wrap] put the lock in front of a memory that the application has, [LockRun] in
// front of a Runner's Run.
//
// # The configuration of "locked"
//
// BaseURL is where the locks and, by default, the sessions are: see package lockurl. Timeout is how long memory.New waits for an answer of
// the server, by default 5 s. Provider and Model mean nothing; an APIKey is refused, user and password are parts of the URL. Options may have
// come from JSON. Durations are text as time.ParseDuration takes it, or of type time.Duration.
//
//	busy           what a Turn does if its session is busy: "wait" (default) in the queue, or "refuse"
//	idle_ttl       how long a session is kept that nobody uses; default: for ever
//	inner          the name of another registered memory, which is locked then; default: the session store on the same server
//	inner_options  the Options of that memory
//	inner_separates_sessions
//	               true if that memory keeps the sessions of contexts apart; else it needs session_id
//	max_exchanges  how many Saves of a session are kept; default: all
//	max_hold       the age past which a lease is not renewed any more; default: none
//	max_retries    with retry_delay: their product is wait; default 3, if the other is given
//	namespace      begins all keys, so that applications can share a server; default: "distlock" for locks, "session" for sessions
//	retry_delay    see max_retries; default 100ms, if that is given. It is also the longest pause where the lock has to be polled for
//	session_id     the one session of this memory, whatever session a context names; the session store keeps tenants apart even so
//	ttl            how long a session stays locked when its instance has died; default 30s
//	wait           how long Turn, Save and Clear wait for their session; default: 5m;
//	               negative: as long as the context allows
//	window         how many Saves Load returns, the last ones; default: all
//
// The memories of Beluga keep one conversation each: make one memory for each session_id.
// docs/beluga.md lists which of them are safe under a lock.
//
// # Errors
//
// Errors of locks and of the session store are core.Errors; the sentinels of distlock and sessionstore are still found by errors.Is.
//
//	core.ErrTimeout        the session is busy; nothing was done, try again
//	core.ErrProviderDown   the lock service, or the store, does not answer, or refuses; nothing was
//	                       done, or trying again is safe, as with a turn ID
//	core.ErrAuth           the password is wrong, or the user lacks a right; nothing was done
//	ErrOutcomeUnknown      a Save without a turn ID was sent, and the answer is lost: trying again could store it twice
//	core.ErrInvalidInput   no session; a wrong option; closed; a lease that was lost, released or overtaken; a message that cannot be stored
//
// core.ErrTimeout and core.ErrProviderDown are retryable for core.IsRetryable. Errors of an inner
// memory, of a function that was given to Turn, and of a context that the caller has cancelled,
// come back as they are.
//
// The states of a run that goes through [LockRun] are in docs/design/runs.md.
package belugamemory
