// Package lastwrite lets a store release a lock in the request of the last write under its lease. It connects
// distlock, lockedmemory and the stores. docs/design/sessions.md has the states.
package lastwrite

import (
	"context"

	"github.com/belugalock/belugalock/distlock/driver"
)

// ReleaseWith calls write, the last write of a store under a lease, with the owner of the lock. lease is a
// *distlock.Lease. The init of distlock sets the variable.
//
// Write is a request to the server of the lock. The request may also release the lock for that owner, as a
// plain [driver.ReleaseRequest] would. If it cannot hand the lock off, it leaves a lock with waiters or
// tombstones alone. If owner is empty, write leaves the lock alone, too. While write runs, the lease is not
// renewed.
//
// The reply says what became of the lock, and the error what became of the request, see
// [driver.MayHaveEffect]. If the reply is Released, the Release of the lease that follows needs no request.
// Replayed, or an error that may have an effect, means that a copy may release the lock later. In both
// cases the lease is not renewed any more. Otherwise the lease goes on.
//
// Call ReleaseWith in a step of distlock.Lease.Guard after which the holder releases the lease.
var ReleaseWith func(lease any, write func(owner string) (driver.ReleaseReply, error))

type announcedKey struct{}

// Announce returns a context for a single write of a locked memory under a lease. The write is the last use
// of the lease, and the caller releases the lease after it.
func Announce(ctx context.Context) context.Context {
	return context.WithValue(ctx, announcedKey{}, true)
}

// Withdraw undoes [Announce]: the write of the context is not the last.
func Withdraw(ctx context.Context) context.Context {
	return context.WithValue(ctx, announcedKey{}, false)
}

// Announced reports whether ctx is one of [Announce].
func Announced(ctx context.Context) bool { return ctx.Value(announcedKey{}) == true }

type callKey struct{}

// call is the last call of an inner memory under a lease.
type call struct{ lease, memory any }

// With returns a context for the last call of an inner memory, a pointer, under a lease.
func With(ctx context.Context, lease, memory any) context.Context {
	return context.WithValue(ctx, callKey{}, call{lease, memory})
}

// For returns the context of the calls that memory makes of its driver. ⚑ A memory around a store may use
// the lease after the store, so only the inner memory itself has a last call.
func For(ctx context.Context, memory any) context.Context {
	if last, ok := ctx.Value(callKey{}).(call); ok && last.memory != memory {
		return With(ctx, nil, nil)
	}
	return ctx
}

// Is reports whether ctx is that of the last call under a lease.
func Is(ctx context.Context, lease any) bool {
	last, ok := ctx.Value(callKey{}).(call)
	return ok && last.lease == lease
}
