// Package fencing is for authors of stores and of wrappers of a Locker. It raises fencing tokens and
// checks leases. Applications need package distlock alone.
//
// A store that refuses a write below its mark raises the token of the rightful holder:
//
//	if token <= mark {
//		err := fencing.RaiseToken(ctx, lease, mark) // fails with ErrLost if the lease is outdated
//	}
package fencing

import (
	"context"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/seam"
)

var core = seam.OfDistlock.(seam.Functions[*distlock.Locker, *distlock.Lease, distlock.Options])

// RaiseToken raises the lease's fencing token above the given one. A store needs that if its mark is
// above the token of a lease that is still held: the mark is from before the backend lost its data
// and its clock stepped back.
//
// RaiseToken does nothing if the token is high enough already. It fails with distlock.ErrInvalidOption
// if above is negative, or at least a year (365 days) ahead of the backend's clock: the mark may be
// damaged, or that clock may be wrong. It fails with distlock.ErrLost if another owner has the lock, so
// that the store's refusal was right; also with distlock.ErrNotHeld, distlock.ErrUnavailable,
// distlock.ErrRefused, or the error of ctx. After a failure the lease has its old token. If the answer
// was lost, the backend may have a higher token, which does no harm.
func RaiseToken(ctx context.Context, lease *distlock.Lease, above int64) error {
	return core.RaiseToken(lease, ctx, above)
}

// Awaited returns the fencing token that the backend showed first to the waiter of a lease: that of the
// holder when the wait began, or of a later one. It is 0 if the lease was granted at once, if no answer
// showed a token, or if the lease's token has been raised since.
//
// A holder that raises its token separates the waiters from before and after: to those after, the backend
// shows the raised token.
func Awaited(lease *distlock.Lease) int64 { return core.Awaited(lease) }

// Since returns the fencing token that the backend showed first to the waiter of a lease, or else the first
// token of the lease. A raise does not change it. It is 0 after a local handoff to a waiter that came after
// the request of the grant. So a lease whose Since is below the token of an ask began to wait before the ask,
// or was asked.
func Since(lease *distlock.Lease) int64 { return core.Since(lease) }

// Ask asks the holder of a key to end its work, see driver.Asker. It fills in the name. It fails with
// errors.ErrUnsupported if the backend cannot ask, and as distlock.Locker.Interrupt.
func Ask(ctx context.Context, l *distlock.Locker, key string, req driver.AskRequest) (driver.AskReply, error) {
	return core.Ask(l, ctx, key, req)
}

// Frees is the option of a call that frees memory of its server, as a Delete. A backend without memory
// grants it the lock, and refuses other calls.
func Frees() distlock.CallOption { return func(c *seam.Call) { c.Frees = true } }

// ForWork is the option of a call that takes the lock for a piece of work. The backend shows its id to
// waiters. The distlock.BusyError of a call with the same id has SameID. Give a hash.
func ForWork(id string) distlock.CallOption { return func(c *seam.Call) { c.Work = id } }

// ForTurn is the option of a call that an ask of its grant means. A local handoff reaches it only if it
// waited before the grant's request: an ask of the grant is then later than the call, too.
func ForTurn() distlock.CallOption { return func(c *seam.Call) { c.Turn = true } }

// Attach returns the value that a lease has under key. Without one, it keeps the result of make, which is
// called each time. The value lasts as long as the lease is referenced, also after its end. The key is
// comparable, as for context.WithValue.
func Attach(lease *distlock.Lease, key any, make func() any) any {
	value, _ := core.Attached(lease).LoadOrStore(key, make())
	return value
}

// Locker returns the Locker of a lease.
func Locker(lease *distlock.Lease) *distlock.Locker { return core.Locker(lease) }

// Driver returns the driver under a Locker, so that a store beside the lock recognizes its server.
// The driver remains the Locker's.
func Driver(l *distlock.Locker) driver.Driver { return core.Driver(l) }

// Backend returns the name of a Locker's kind of backend, as "redis" or "memory".
func Backend(l *distlock.Locker) string { return Driver(l).Capabilities().Backend }

// Options returns the options in force, with defaults. Their Observer survives panics of the
// application's, and their Logger does not block.
func Options(l *distlock.Locker) distlock.Options { return core.Options(l) }
