// Package driver is the seam between a Locker and the service that keeps its locks.
//
// A backend implements [Driver] and runs drivertest.Run against a real instance of its service; nothing else has
// to change. The work is divided so that a driver stays small:
//
//   - The driver decides, atomically and by the service's own clock, who holds a name, and mints the fencing token.
//   - The Locker does everything that has to do with time on the client: waiting, retries, renewal schedules, trust
//     deadlines, clean-up after a call whose outcome is unknown. A driver never waits for another try, never starts a
//     goroutine that outlives Close, and returns the errors of its client with what kind they are of, see [ErrTemporary]
//     (wrapped with %w, so that they stay visible).
//
// Every call may be repeated with the same arguments, because clients of such services replay requests by
// themselves: each method states what a repetition does.
package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxFence bounds every fencing token: tokens stay below 2^53, so that they pass unharmed through Lua and JavaScript
// numbers.
const MaxFence int64 = 1<<53 - 1

// FenceBlock is the Capabilities.FenceBlock of backends in which one clock mints all tokens of a name: 20,000 µs.
//
// One grant owns the tokens Fence…FenceEnd of its [AcquireReply]; whoever is granted the name next gets a token above
// FenceEnd. Tokens count microseconds since the Unix epoch, so a block that is never used up costs nothing.
const FenceBlock int64 = 20_000

// FenceKeep is how long a service remembers the last token of a name beyond the moment the token stands for. The
// token clock is far past the remembered one by then, so forgetting it keeps tokens rising unless the service's clock
// steps back by more than FenceKeep.
const FenceKeep = 24 * time.Hour

// FloorAhead is how far ahead of the service's clock a FenceFloor may be: 365 days.
//
// A token near [MaxFence] leaves the name no room for further grants. A damaged mark of a store can
// ask for such a token.
const FloorAhead = 365 * 24 * time.Hour

// The kinds of a failed call. An error that wraps none of them means an unknown outcome: no answer
// came, or an answer in an unknown format. See [MayHaveEffect].
var (
	// ErrTemporary is wrapped by the error of a call that the service rejects for now: it starts,
	// fails over, moves data, or is busy. The same call may succeed in a moment.
	ErrTemporary = errors.New("the service cannot answer now")
	// ErrRefused is wrapped by the error of a call that the service rejects until an operator has
	// changed something: a right is missing, or memory.
	ErrRefused = errors.New("the service refused")
	// ErrRights is the ErrRefused of a user, or of a password, that lacks a right.
	ErrRights = fmt.Errorf("%w: a right is missing", ErrRefused)
	// ErrForeign is wrapped by the error of a call that found data of another program under the name
	// of the lock. The data is left as it is.
	ErrForeign = errors.New("data of another program has the name of the lock")
	// ErrFloor is wrapped by the error of an Acquire whose FenceFloor is more than FloorAhead ahead of
	// the service's clock. Nothing was written.
	ErrFloor = errors.New("the floor is more than a year ahead of the service's clock")
	// ErrNotSent is wrapped by the error of a call of which nothing was sent: no connection could be
	// made, none was free, or ctx had ended. It may stand beside another kind.
	ErrNotSent = errors.New("the request was not sent")
	// ErrReplayed is wrapped by the error of a call that was sent more than once. The error, with its
	// kind, is that of the last copy. An earlier copy may have taken effect.
	ErrReplayed = errors.New("an earlier copy of the request may have taken effect")
)

// MayHaveEffect reports whether a request that failed with err may have taken effect, or may do so
// later.
func MayHaveEffect(err error) bool {
	for _, definite := range []error{ErrTemporary, ErrRefused, ErrForeign, ErrFloor, ErrNotSent} {
		if errors.Is(err, definite) {
			return errors.Is(err, ErrReplayed)
		}
	}
	return err != nil
}

// Name names a lock. Two different Names never share a lock: a driver that joins the parts must do so unambiguously
// whatever bytes Key holds. The Locker has validated both parts: valid UTF-8 without control characters,
// Key of 1 to 1024 bytes, Namespace of 1 to 128 bytes without braces.
type Name struct {
	Namespace string
	Key       string
}

// Capabilities say what a backend can do. The conformance suite tests what is promised here.
type Capabilities struct {
	// Backend is the name that telemetry shows, as "redis" or "memory".
	Backend string
	// Shared says that drivers in other processes see the same locks.
	Shared bool
	// Queues says that the backend keeps waiters in the order of their tickets and hands a free name to
	// the first of them. A driver without it ignores Alive, Seq, Ticket and Leave of its requests.
	Queues bool
	// FenceBlock is how far beyond the backend's clock a grant reserves tokens, in µs: its FenceEnd is
	// max(Fence, clock + FenceBlock). With a block of at most 256, FenceEnd may be Fence + FenceBlock instead.
	FenceBlock int64
	// Exact says that an Acquire may state its tokens, as a quorum needs. It is granted only if the tokens
	// are above all that were reserved before. docs/design/driver.md lists every case.
	Exact bool
	// MaxBatch is the most requests of one Extend; 0 means 1,000.
	MaxBatch int
}

// AcquireRequest asks for a name on behalf of one acquisition.
type AcquireRequest struct {
	Name Name
	// Owner is the identity of this one acquisition: 32 lower-case hexadecimal digits, never used again.
	Owner string
	// TTL is how long the grant lasts unless it is extended; whole milliseconds, at least one.
	TTL time.Duration
	// FenceFloor is a lower bound for the token: a store that has seen a token tells the lock to jump above it. Zero if
	// there is none.
	//
	// A floor more than FloorAhead ahead of the service's clock fails with ErrFloor, whether the name
	// is free or held.
	FenceFloor int64
	// Fence and FenceEnd, if not 0, ask for exactly these tokens, see Capabilities.Exact. Such a request
	// has no FenceFloor and no Alive.
	Fence, FenceEnd int64
	// Holder describes the holder to people, see Options.Holder of distlock.
	Holder string
	// Metadata travels in the lock and is shown to those who find the name busy: the trace context. May be nil.
	Metadata map[string]string

	// Alive, if positive, has a request that finds the name busy enter the queue, or stay there, for this
	// long from the moment the backend handles it. Whole milliseconds, at most TTL.
	//
	// The owner leaves the queue by a grant, by a Release with Leave, or when the time passes without
	// another Acquire. It is then dropped, at the latest when its turn comes, and enters again with its
	// ticket. Another Acquire with Alive counts anew, and shortens no earlier promise.
	Alive time.Duration
	// Seq numbers the requests of one owner that stand in line, from 1. A hand-over names the last that had been handled.
	Seq int64
	// Ticket is the place at which an owner enters the line again that had left it, or was dropped; 0: at its end.
	Ticket int64
}

// Outcome says how an acquire ended.
type Outcome int

const (
	// Busy: another owner holds the name.
	Busy Outcome = iota
	// Granted: the name is held by the request's owner.
	Granted
	// Void: the owner was cancelled before, or its grant is over; it can never hold the name again.
	Void
	// Full: as Busy, and MaxLine others stand in line, so the owner does not.
	Full
	// TooLow: the tokens of an exact request are not above Last, or are so far behind the backend's clock
	// that it may have forgotten a higher one: FenceKeep at most, a second at least. Nothing was written.
	TooLow
)

// AcquireReply answers an AcquireRequest.
type AcquireReply struct {
	Outcome Outcome
	// Fence is the fencing token of a grant: max(last+1, the service's clock in µs since the Unix epoch, FenceFloor).
	Fence int64
	// FenceEnd is the last token reserved for this grant, see Capabilities.FenceBlock.
	FenceEnd int64
	// State describes the present holder of a busy name.
	State State
	// Last is the highest token that is reserved for the name, and Clock the backend's time in µs since the
	// Unix epoch. Every reply to an exact request has both.
	Last, Clock int64
	// Ticket is the owner's place in line: the lower, the sooner. 0: it does not stand in line.
	Ticket int64
	// Waiters is how many stand in line behind a grant.
	Waiters int
	// Replayed says that the client may have sent the request more than once: a copy of it may still be under way.
	Replayed bool
}

// RaiseRequest asks for a higher token for an owner that holds the name.
type RaiseRequest struct {
	Name  Name
	Owner string
	// Floor is the least token that is high enough. More than FloorAhead ahead of the service's clock,
	// it fails with ErrFloor.
	Floor int64
}

// RaiseReply answers a RaiseRequest.
type RaiseReply struct {
	// Held says that the owner holds the name. False without an error is final.
	Held bool
	// Fence and FenceEnd are the tokens reserved for the grant from now on. The Age in State may count
	// from a raise.
	Fence, FenceEnd int64
}

// ExtendRequest prolongs one grant.
type ExtendRequest struct {
	Name  Name
	Owner string
	// TTL counts from the moment the service handles the request; whole milliseconds.
	TTL time.Duration
	// Exact sets the remaining time to TTL even if more was left. Without it an extension never shortens a grant.
	Exact bool
}

// ExtendReply answers one ExtendRequest.
type ExtendReply struct {
	// Held says that the owner holds the name and that its TTL was set. False without an error is final: the owner
	// does not hold the name.
	Held bool
	// End is a request to the holder, see [Interrupter].
	End EndRequest
	// Err is the error of this one request.
	Err error
}

// ReleaseRequest ends a grant.
type ReleaseRequest struct {
	Name  Name
	Owner string
	// VoidFor, if positive, marks the owner as cancelled for this long, whether it held the name or not. It is how the
	// Locker cleans up after an acquire with unknown outcome: a copy of that acquire which arrives later is answered
	// Void. Whole milliseconds.
	VoidFor time.Duration
	// Leave says that the owner may stand in line, and leaves it.
	Leave bool
}

// ReleaseReply answers a ReleaseRequest.
type ReleaseReply struct {
	// Released says that this owner's grant was ended: by this call, or by an earlier copy of it, also if one other
	// owner was granted the name since. False means that the owner did not hold the name any more.
	Released bool
	// Replayed is that of AcquireReply. A release whose first copy had succeeded may then be answered with false.
	Replayed bool
}

// State is what can be seen of a name from outside.
type State struct {
	Held     bool
	Holder   string
	Fence    int64
	Age      time.Duration // since the grant, by the service's clock
	TTL      time.Duration // left, by the service's clock; negative: the grant does not expire
	Waiters  int
	Metadata map[string]string
}

// Driver keeps locks. It may also implement the optional interfaces [Listener] and others, see [As]. It is safe for concurrent use. All methods but Capabilities and Close may block on the network
// until ctx ends; a driver whose client does not notice the end of ctx promptly may return late.
// The kind of an error says what became of the request, see MayHaveEffect.
type Driver interface {
	// Capabilities is constant over the life of the driver.
	Capabilities() Capabilities

	// Acquire grants the name to the owner if nobody holds it. It is idempotent: for an owner that holds the name
	// already it answers with the stored token, and leaves it at least the TTL, never less than is left.
	Acquire(ctx context.Context, req AcquireRequest) (AcquireReply, error)

	// Raise gives the present owner of a name a token of at least the floor, as for a new grant. It
	// keeps a token that is high enough, and the remaining time in every case. It grants the name to
	// no owner.
	Raise(ctx context.Context, req RaiseRequest) (RaiseReply, error)

	// Extend prolongs grants, in one exchange as far as the service allows. The reply at index i answers reqs[i].
	// It never creates a grant, and needs no new memory in the service. Each request is sent once: a copy of an exact
	// one that arrives late could shorten what was prolonged since, so a client that replays must be kept from it.
	Extend(ctx context.Context, reqs []ExtendRequest) []ExtendReply

	// Release ends the owner's grant and no other, and hands the name to the first waiter of the queue. The first thing it writes is a removal, so it works in a service
	// that is out of memory. It is idempotent as ReleaseReply says.
	Release(ctx context.Context, req ReleaseRequest) (ReleaseReply, error)

	// Inspect shows who holds the name. It changes nothing. A name that nobody holds has a State with Held false.
	Inspect(ctx context.Context, name Name) (State, error)

	// Close frees what the driver itself opened, never a client that it was given. It is called once, after the last
	// other call has returned.
	Close() error
}

// MinHandover is the least TTL of a handoff. A handoff is a grant of a free name to the first waiter of the
// queue, by the Acquire or Release of any owner that finds the name free. It lasts as long as the waiter's
// promise. The waiter claims it by an Acquire, which leaves it the full TTL.
const MinHandover = time.Second

// MaxLine is how many may stand in the line of one name.
const MaxLine = 1000
