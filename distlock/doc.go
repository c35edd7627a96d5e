// Package distlock leases names, across the machines that share a lock service.
//
// A [Locker] works over one service: Redis (package redislock), or the memory of one process (package memlock). Its
// leases exclude each other, are renewed while their holder lives, end by themselves when it dies, and tell
// their holder when they are lost, before anybody else can have them:
//
//	err := locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
//		return work(ctx) // ctx ends when the lease does
//	})
//
// # What holds
//
// At most one lease on a name is alive at any time, as long as the service keeps a lock for its TTL and clocks run apart
// by less than one percent. Where that fails (the service loses its data, a lock is removed by hand, a process is stopped
// between a check and a write), two may work at once for a while. The fencing token of [Lease.Fence] rises with
// every lease, so a store that compares tokens can still refuse the older writer.
//
// # The states of a lease
//
//	held → releasing → released     Release: guarded steps end, then the service is told
//	held, releasing → lost          the deadline passed, or the service says that the lock is another's
//	held → suspect → held, lost     the wall clock ran ahead, where that may have been a suspend; the service tells
//
// The deadline is what a lease's trust rests on. Each request that the service grants moves it to the moment the request
// was sent, plus the TTL, less drift and margin (the service's TTL begins later, so it ends later). Nothing else moves it
// forward; an Extend that shortens the lease moves it back before it is sent. When it passes, the lease is lost: a timer
// sees to that, and every call that depends on the lease compares the clock by itself, because timers may be late.
//
// # How an acquisition can end
//
// An acquisition has an identity of its own, the owner, under which each of its requests may arrive any number of times.
//
//	the service's answer         the caller is there     the caller has left (ctx, Wait, Close)
//	granted, in time             a lease                 cleaned up
//	granted, < TTL/4 left        cleaned up, ErrUnavailable
//	busy                         waits, or BusyError     nothing is left behind
//	turned away for now          waits, ErrUnavailable   cleaned up
//	none                         waits if it was told busy before; cleaned up, ErrUnavailable, or the error of ctx
//	refused                      cleaned up, ErrRefused
//
// Answer and departure can meet: exactly one of the two decides, and a lease is returned or undone, never both or neither.
// To clean up is to release and to mark as cancelled, in the background. The clean-up tries until the
// backend has answered, for the TTL or 2 minutes, whichever is longer. The mark makes the backend refuse
// copies of the request that arrive later. A lease whose request was sent twice, by the Locker or the
// driver's client, is marked when it is released. A lease that could not be released is cleaned up.
//
// # Who waits where
//
// Those who wait for one key through one Locker stand in a line, first come first served. One of them at most asks the
// service: the contender. Where the service keeps a line as well, it stands in that, for all of them.
//
//	the line has                    the first in line
//	a contender                     waits
//	a holder, granted just now      waits: the lock is handed on to it; when the window has passed, it becomes the contender
//	a holder, granted before that   becomes the contender, if the service keeps a line; otherwise it waits for the release
//	a holder giving the lock back   likewise, at once
//	neither                         becomes the contender
//
// A holder that releases the lock hands it on to the first in line, without a word to the service: the new lease goes on with
// the old one's grant, under the next of the fencing tokens that were reserved for it. So it is done for 10 ms after
// a grant, and, if others wait in the service's line, once for each who stood in line at the time of the grant. Then the lock goes back
// to the service and whoever is first there. A lock is not handed on near its deadline, after an Extend, or while anything is
// under way that was asked for the old lease.
//
//	a waiter, when           its caller leaves                           the Locker closes
//	in line                  is gone                                     ErrClosed
//	called to contend        passes that on to the next                  ErrClosed, and leaves the service's line
//	contending               leaves the service's line; so does a grant  likewise
//	                         that comes too late; the next contends
//	handed the lock          has the lease all the same                  the lease is given back
//
// If the backend does not answer a contender, that contender fails alone and the next waiter tries. If
// the second in a row fails as well, all waiters behind it share its error. A refusal is shared at once.
//
// # Calls of the backend
//
// Each call of the backend runs in a goroutine of its own, and the caller leaves as soon as its context ends. Clients
// tend to sit in a read long after that.
package distlock
