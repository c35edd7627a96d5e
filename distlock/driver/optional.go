package driver

import (
	"context"
	"time"
)

// As returns d as a T, or the nearest driver beneath d that is a T. A wrapper shows the driver
// beneath by a method Unwrap() Driver. A wrapper that is a T itself comes first; its methods return
// [errors.ErrUnsupported] if no driver beneath is a T.
func As[T any](d Driver) (t T, ok bool) {
	if t, ok = d.(T); ok {
		return t, true
	}
	if wrapper, ok := d.(interface{ Unwrap() Driver }); ok {
		return As[T](wrapper.Unwrap())
	}
	return t, false
}

// Shared is a driver of several Lockers. It stays open when a Locker is closed. A Locker uses the driver
// in it as its own, so a store on the server of the locks recognizes that driver.
type Shared struct{ Driver }

// Unwrap shows the driver in it.
func (s Shared) Unwrap() Driver { return s.Driver }

// Close does nothing. Close the driver in it after the Lockers.
func (Shared) Close() error { return nil }

// Listener is implemented by a Driver whose backend notifies owners. No caller relies on a
// notification: without a Listener, waiters poll.
type Listener interface {
	// Listen sends wakes of the owner to the channel until stop is called. A wake that was not
	// received is replaced by the next. Listen returns when wakes will come, or with the reason why
	// they will not; the owner may enter the queue even so. The channel is closed when no further
	// wake will come. What Listen starts ends with Close.
	Listen(ctx context.Context, name Name, owner string) (wakes <-chan Wake, stop func(), err error)
}

// Wake notifies an owner of a handoff: the grant of a free name to the first waiter, made by any
// Acquire or Release that finds the name free. It lasts as long as the waiter's promise, and at
// least MinHandoff. The waiter claims it by an Acquire, which leaves it the full TTL.
//
// The zero Wake means that the name may be free or handed off, or that a wake may have been missed: the
// owner asks again. A backend without a queue sends only that one. ⚑ So does one that has read a handoff
// that the backend may lose: a wake with a grant comes after the answer to the Acquire or Release.
type Wake struct {
	// Grant is the reply to the Acquire that the handoff answers.
	Grant AcquireReply
	// Seq is that of the owner's last request that the backend had handled before the handoff.
	Seq int64
	// TTL is how long the grant lasts from the moment of the handoff.
	TTL time.Duration
}

// Lister is implemented by a Driver that lists names. It serves operators: a backend may need
// seconds, and a page shows a moment that has passed.
type Lister interface {
	// List returns a page of the names of a namespace that are held or have waiters. A name that is
	// held while all pages are read is on at least one of them, and may be on two. The order is the
	// backend's. A page may be short, or empty, and have a next page.
	List(ctx context.Context, req ListRequest) (ListReply, error)
}

// ListRequest asks for one page.
type ListRequest struct {
	Namespace string
	// After is the Next of the page before; empty for the first page.
	After string
	// Limit is about how many names the page has, at least 1. Some backends return a few more.
	Limit int
	// Key, if not empty, asks for this one name, on one page. After is then empty.
	Key string
	// Waiters is the most waiters shown of each name, in the order of the queue; 0 shows none.
	Waiters int
}

// ListReply is one page.
type ListReply struct {
	Names []Listed
	// Next is the After of the next page; empty after the last page.
	Next string
}

// Listed is a name as a page shows it. State.Held is false if the name is free and has waiters.
type Listed struct {
	Name  Name
	State State
	Queue []Waiter
}

// Waiter is an owner in the queue.
type Waiter struct {
	Holder   string            // of its AcquireRequest
	Metadata map[string]string // of its AcquireRequest
	Ticket   int64             // the place in the queue
	Alive    time.Duration     // the rest of its promise, by the backend's clock
}

// Breaker is implemented by a Driver that ends grants for an operator.
type Breaker interface {
	// Break releases the name for its holder, if fence is the token of the present grant, as State
	// shows it. It reports whether it did. The holder can never hold the name again, as after its own
	// Release, and the name goes to the first waiter of the queue. Each other token has no effect,
	// those reserved for the grant included, so a repetition ends no other grant.
	Break(ctx context.Context, name Name, fence int64) (broken bool, err error)
}
