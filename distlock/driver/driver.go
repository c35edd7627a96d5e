// Package driver is the seam between a Locker and the backend that keeps its locks.
//
// A backend implements [Driver], and those of the optional interfaces that it can: [Listener],
// [Lister], [Breaker], [Asker]. It runs drivertest.Run against a real server.
// docs/howto/new-backend.md shows how to write one, and package memlock is the template.
// docs/design/driver.md states the protocol: what each call decides, the states of an owner,
// tombstones, the queue, and the backend's clock.
//
// A driver never waits for another try. It returns the errors of its client, wrapped with %w, with
// the kind that is certain, see [ErrTemporary]. Clients replay requests by themselves, so every
// call may be repeated with the same arguments, except Extend.
package driver

import (
	"context"
	"time"
)

// MaxFence bounds every fencing token: tokens stay below 2^53, so that Lua and JavaScript numbers
// hold them.
const MaxFence int64 = 1<<53 - 1

// FenceBlock is how far beyond the backend's clock a grant reserves tokens: 20,000 µs. Its FenceEnd
// is max(Fence, clock + FenceBlock). A backend may reserve a shorter block.
const FenceBlock int64 = 20_000

// FenceKeep is how long a backend remembers the last token of a name beyond the moment that the
// token stands for: 24 hours. Later tokens are higher unless the backend's clock steps back by
// more.
const FenceKeep = 24 * time.Hour

// FloorAhead is how far ahead of the backend's clock the floor of a Raise may be: 365 days. A damaged mark
// of a store can ask for a token near [MaxFence], which leaves the name no room for further grants.
const FloorAhead = 365 * 24 * time.Hour

// MinHandoff is the least TTL of a handoff.
const MinHandoff = time.Second

// MaxBatch is the most requests of one Extend.
const MaxBatch = 1000

// MaxQueue is the most waiters in the queue of one name.
const MaxQueue = 1000

// WorkKey is the key of the work in the metadata of a grant: a hash of the message that it answers.
const WorkKey = "work"

// Name names a lock. Two different Names never share a lock, whatever bytes Key holds. The Locker
// has validated both parts: valid UTF-8 without control characters, Key of 1 to 1024 bytes,
// Namespace of 1 to 128 bytes without braces.
type Name struct {
	Namespace string
	Key       string
}

// Capabilities state what no optional interface shows. The conformance suite tests them.
type Capabilities struct {
	// Backend is the name that telemetry shows, as "redis" or "memory".
	Backend string
	// AcrossProcesses says that drivers in other processes see the same locks.
	AcrossProcesses bool
	// Queues says that the backend keeps waiters in the order of their tickets and hands a free
	// name to the first of them. A driver without it ignores Alive, Seq, Ticket and Leave of its
	// requests.
	Queues bool
}

// AcquireRequest asks for a name on behalf of one acquisition.
type AcquireRequest struct {
	Name Name
	// Owner is the identity of this acquisition: 32 lower-case hexadecimal digits, never used
	// again.
	Owner string
	// TTL is how long the grant lasts unless it is extended; whole milliseconds, at least one.
	TTL time.Duration
	// Holder describes the holder to people, see Options.Holder of distlock.
	Holder string
	// Metadata is shown to callers that find the name busy: the trace context, and under [WorkKey] the
	// work. It may be nil.
	Metadata map[string]string
	// Frees says that the holder is about to free memory of the backend. A backend without memory grants
	// such a request, as far as it can.
	Frees bool

	// Alive, if positive, has a request that finds the name busy enter the queue, or stay there,
	// for this long from the moment the backend handles it. Whole milliseconds, at most TTL.
	//
	// The owner leaves the queue by a grant, by a Release with Leave, or when the time passes
	// without another Acquire. It is then dropped, at the latest when its turn comes, and enters
	// again with its ticket. Another Acquire with Alive counts anew, and shortens no earlier
	// promise.
	Alive time.Duration
	// Seq numbers the requests of one owner with Alive, from 1. A handoff names the last one that
	// the backend had handled.
	Seq int64
	// Ticket is the place at which an owner enters the queue again after it left or was dropped; 0:
	// the end.
	Ticket int64
}

// Outcome says how an acquire ended.
type Outcome int

const (
	// Busy: another owner holds the name.
	Busy Outcome = iota
	// Granted: the request's owner holds the name.
	Granted
	// Cancelled: the owner has a tombstone, or its grant is over. It can never hold the name again.
	Cancelled
	// Full: as Busy, and MaxQueue others are in the queue, so the owner is not.
	Full
)

// AcquireReply answers an AcquireRequest.
type AcquireReply struct {
	Outcome Outcome
	// Fence is the fencing token of a grant: max(last+1, the backend's clock in µs since the Unix
	// epoch).
	Fence int64
	// FenceEnd is the last token reserved for this grant, see FenceBlock. The next grant gets a token
	// above it.
	FenceEnd int64
	// State describes the present holder of a busy name. Its Fence is never below that of a grant or a
	// Raise that was answered before: a store tells by it whether a wait began before an event.
	State State
	// Ticket is the owner's place in the queue: the lower, the sooner; 0: the owner is not in the
	// queue.
	Ticket int64
	// Waiters is the number of waiters behind a grant.
	Waiters int
	// Replayed says that the client may have sent the request more than once: a copy may still
	// arrive.
	Replayed bool
}

// RaiseRequest asks for a higher token for an owner that holds the name.
type RaiseRequest struct {
	Name  Name
	Owner string
	// Floor is the least token that is high enough. A floor more than FloorAhead ahead of the
	// backend's clock fails with ErrFloor.
	Floor int64
}

// RaiseReply answers a RaiseRequest.
type RaiseReply struct {
	// Held says that the owner holds the name. False without an error is final.
	Held bool
	// Fence and FenceEnd are the tokens reserved for the grant from now on. The Age in State may
	// count from a raise.
	Fence, FenceEnd int64
}

// ExtendRequest prolongs one grant, and never shortens it.
type ExtendRequest struct {
	Name  Name
	Owner string
	// TTL counts from the moment the backend handles the request; whole milliseconds.
	TTL time.Duration
}

// ExtendReply answers one ExtendRequest.
type ExtendReply struct {
	// Held says that the owner holds the name and that its TTL is set. False without an error is
	// final.
	Held bool
	// Asked says that the holder was asked to end its work, see [Asker].
	Asked bool
	// Err is the error of this one request.
	Err error
}

// ReleaseRequest ends a grant.
type ReleaseRequest struct {
	Name  Name
	Owner string
	// Tombstone, if positive, keeps a tombstone of the owner for this long, whether it held the name
	// or not. The backend answers an Acquire of that owner that arrives later with Cancelled. Whole
	// milliseconds.
	Tombstone time.Duration
	// Leave takes the owner out of the queue, too.
	Leave bool
}

// ReleaseReply answers a ReleaseRequest.
type ReleaseReply struct {
	// Released says that this owner's grant was ended, by this call or by an earlier copy of it,
	// also if one other owner was granted the name since. False means that the owner did not hold
	// the name any more.
	Released bool
	// Replayed is that of AcquireReply. A release whose first copy succeeded may then report false.
	Replayed bool
}

// State is what a backend shows of a name.
type State struct {
	Held     bool
	Holder   string
	Fence    int64         // the shown token: of the last Ask of this grant, or else of the grant
	Age      time.Duration // since the grant, by the backend's clock
	TTL      time.Duration // left, by the backend's clock; negative: the grant does not expire
	Waiters  int
	Metadata map[string]string
}

// Driver keeps locks. It is safe for concurrent use. It may also implement the optional interfaces,
// see [As].
//
// Each method but Capabilities and Close may block on the network until ctx ends, and no longer: a
// driver whose client reads on makes the call in a goroutine of its own. Goroutines of a driver may
// live until Close. The kind of an error says what became of the request, see MayHaveEffect.
type Driver interface {
	// Capabilities is constant over the life of the driver.
	Capabilities() Capabilities

	// Acquire grants a free name to the owner. It is idempotent: an owner that holds the name gets
	// its stored token, and at least the TTL, never less than is left. A free name with waiters
	// goes to the first of them, see [Wake].
	Acquire(ctx context.Context, req AcquireRequest) (AcquireReply, error)

	// Raise gives the present owner of a name a token of at least the floor, as for a new grant. It
	// keeps a token that is high enough, and the remaining time in every case. It grants the name
	// to no owner.
	Raise(ctx context.Context, req RaiseRequest) (RaiseReply, error)

	// Extend prolongs grants, in one exchange as far as the backend allows. The reply at index i
	// answers reqs[i]. It never creates a grant, and shortens none. Each request is sent once:
	// the caller's renewal repeats it. In Redis it needs no new memory.
	Extend(ctx context.Context, reqs []ExtendRequest) []ExtendReply

	// Release ends the owner's grant and no other, and hands the name to the first waiter. It is
	// idempotent as ReleaseReply says. In Redis its first write needs no memory, so that it works in a
	// server without memory.
	Release(ctx context.Context, req ReleaseRequest) (ReleaseReply, error)

	// Inspect shows the holder of the name. It changes nothing. A free name has a State with Held
	// false.
	Inspect(ctx context.Context, name Name) (State, error)

	// Close frees what the driver itself opened, never a client that it received, and waits for the
	// end of its goroutines. It is called once, after the last other call has returned.
	Close() error
}
