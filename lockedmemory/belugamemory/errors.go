package belugamemory

import "github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"

// The codes of this adapter, beside those of package core. core.IsRetryable is false for them.
const (
	// ErrOutcomeUnknown is the code of a write whose answer is lost: of Save, Append, Replace, Clear and
	// Delete, and of the Update of a run. The write may have taken effect, or do so later. A repeated Save
	// can store twice. A repeated Clear or Delete can erase what came between. SaveOnce and Answer have an
	// ID, and fail with core.ErrProviderDown instead.
	ErrOutcomeUnknown = codes.OutcomeUnknown
	// ErrLockLost is the code of distlock.ErrLost: the lease has ended before its release. Repeat the
	// turn or the run. If the error also matches distlock.ErrOutcomeUnknown, its write may be stored.
	ErrLockLost = codes.LockLost
	// ErrShuttingDown is the code of distlock.ErrClosed: the memory, the Runner or the Locker was closed.
	// Ask another instance.
	ErrShuttingDown = codes.ShuttingDown
	// ErrInterrupted is the code of distlock.ErrInterrupted: a Stop or an Interrupt has ended the turn or the
	// run. It is also that of lockedmemory.ErrStopped and ErrSuperseded: the message is never answered.
	ErrInterrupted = codes.Interrupted
)

// Retryable reports whether the same call can be repeated, on this instance. Then nothing was done, or
// the ID of the call lets the repetition store nothing twice. It looks at the error of this project inside
// err, where core.IsRetryable sees the code that an agent or Runner of Beluga has put around it. For
// errors of others it returns core.IsRetryable.
func Retryable(err error) bool { return codes.Retryable(err) }
