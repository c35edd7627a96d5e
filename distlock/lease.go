package distlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// Lease is the right to a key until it is released or lost. It is renewed, and safe for concurrent use.
type Lease struct {
	locker   *Locker
	name     driver.Name
	owner    string // shared by the leases of one tenure
	fence    atomic.Int64
	ttl      time.Duration // what renewals ask for
	doubt    bool          // a copy of a request that was sent for the grant may still be under way
	metadata map[string]string
	acquired time.Time
	values   values
	ctx      context.Context
	cancel   context.CancelCauseFunc

	mu        sync.Mutex
	tenure    tenure
	state     leaseState
	trust     trust.Trust
	next      trust.Moment  // when the first renewal is due
	unsettled int           // Extends and Refences whose answer is not there yet
	ended     error         // why the lease is not held any more
	asked     int           // how many requests to release there were
	removed   bool          // an answer came: there is nothing left to release
	unknown   error         // the error of Release then; not nil if the lease may have been lost before
	failure   error         // of the last call of Release
	releasing bool          // a call of Release is under way
	released  chan struct{} // closed when it has ended; made when another call waits for that
	guard     chan struct{} // holds a token while a guarded call runs; made when first needed
	extending chan struct{} // likewise for Extend

	renewal renewal // owned by renewals
	expiry  expiry  // owned by expiries
	listed  listed  // by Locker.leases
}

type leaseState int

const (
	held leaseState = iota
	releasing
	released
	lost
)

// newLease makes the lease of a grant that lasts for ttl from some moment after sent.
func newLease(a *acquisition, sent trust.Moment, ttl time.Duration, reply driver.AcquireReply) *Lease {
	at := time.Now()
	le := &Lease{
		locker: a.locker,
		name:   a.req.Name,
		owner:  a.req.Owner,
		ttl:    a.req.TTL,
		doubt:  a.outcomeUnknown,
		tenure: tenure{won: at, first: reply.Fence, last: reply.FenceEnd},
		trust:  trust.Granted(sent, ttl),
	}
	le.next = le.trust.FirstRenewal(trust.Now(), le.ttl, le.period())
	le.belongTo(a, reply.Fence, at)
	return le
}

// belongTo makes the lease that of an acquisition.
func (le *Lease) belongTo(a *acquisition, fence int64, at time.Time) {
	le.metadata = a.op.Metadata
	le.acquired = at
	le.fence.Store(fence)
	le.values = values{a.caller, le}
	le.ctx, le.cancel = context.WithCancelCause(&le.values)
}

// start begins to enforce the deadline and to renew.
func (le *Lease) start() {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.state != held { // closed in the meantime
		return
	}
	le.locker.expiries.watch(le, le.trust.Deadline())
	le.locker.renewals.add(le, le.next)
}

// Key returns the key of the lease.
func (le *Lease) Key() string { return le.name.Key }

// Fence returns the fencing token: below 2^53, and above that of each earlier lease of the key
// (Kleppmann, "How to do distributed locking", 2016).
func (le *Lease) Fence() int64 { return le.fence.Load() }

// Context has the values of the context given to Acquire. It ends with the lease, with the cause
// [ErrLost], or [ErrNotHeld] after a release.
func (le *Lease) Context() context.Context { return le.ctx }

// Deadline returns when the lease ends unless a renewal or Extend moves it: a TTL after the sending of
// the last granted request, less about 2 %.
func (le *Lease) Deadline() time.Time {
	le.mu.Lock()
	defer le.mu.Unlock()
	at := time.Now()
	return at.Add(le.trust.Left(trust.At(at)))
}

// Err returns nil while the lease is held, by clock and deadline. Otherwise it matches [ErrLost] or
// [ErrNotHeld], or [ErrUnavailable] after a suspend of unknown length, until Guard or a renewal has
// asked the backend.
func (le *Lease) Err() error {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.errLocked()
}

// check is Err, and asks the backend if the clock is not enough.
func (le *Lease) check(ctx context.Context) error {
	err := le.Err()
	if errors.Is(err, errSuspect) {
		return le.confirm(ctx)
	}
	return err
}

func (le *Lease) errLocked() error {
	at := trust.Now()
	switch {
	case le.state == released || le.state == lost:
		return le.ended
	case le.trust.Over(at):
		return le.lossLocked(errDeadline)
	case le.state == releasing:
		return fmt.Errorf("%w: the lease is being released", ErrNotHeld)
	case le.trust.Suspect(at):
		return unavailable("check", errSuspect)
	}
	return nil
}

// gone is Err, but nil if the only reason is errSuspect.
func (le *Lease) gone() error {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.goneLocked()
}

func (le *Lease) goneLocked() error {
	if err := le.errLocked(); !errors.Is(err, errSuspect) {
		return err
	}
	return nil
}

var (
	errDeadline = errors.New("its deadline passed before it was renewed, or this process was paused; " +
		"check the lock service and its latency, or use a longer TTL")
	errSuspect = errors.New("the wall clock ran ahead, so the machine may have been suspended; the next renewal, or Guard, asks the backend")
	errNotMine = errors.New("the lock service does not know it any more; " +
		"the lock expired there, was removed by hand, or the service lost its data")
)

// token returns the one-place channel at field, made when first needed: most leases never need it.
func (le *Lease) token(field *chan struct{}) chan struct{} {
	le.mu.Lock()
	defer le.mu.Unlock()
	if *field == nil {
		*field = make(chan struct{}, 1)
	}
	return *field
}

// settle notes that an Extend or Refence has its answer.
func (le *Lease) settle() {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.unsettled--
}

// expire runs when the deadline may have passed.
func (le *Lease) expire() {
	le.mu.Lock()
	defer le.mu.Unlock()
	switch {
	case le.state == lost || le.removed:
	case !le.trust.Over(trust.Now()): // renewed
		le.locker.expiries.watch(le, le.trust.Deadline())
	case le.state == released: // and the removal has no answer: the Observer or the driver blocks
		le.tenure.hold.End(true)
	default:
		le.lossLocked(errDeadline)
	}
}

// lose ends a lease that is not this holder's any more, and returns the error to say so.
func (le *Lease) lose(reason error) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.state == released || le.state == lost {
		return le.ended
	}
	return le.lossLocked(reason)
}

// lossLocked turns a held lease into a lost lease. It cancels the context first. The reports call the
// hooks.
func (le *Lease) lossLocked(reason error) error {
	le.state = lost
	le.ended = fmt.Errorf("%w: %w", ErrLost, reason)
	le.cancel(ErrLost)
	le.locker.expiries.forget(le)
	at := time.Now()
	age := at.Sub(le.acquired)
	l := le.locker
	l.renewals.remove(le)
	le.tenure.hold.End(true)
	l.reports.operation(le.ctx, &Operation{Name: OpLost, Backend: l.backend, Key: le.name.Key, Fence: le.Fence(),
		Began: at, Held: age, Err: le.ended, Outcome: OutcomeLost}, true)
	l.log(slog.LevelWarn, "distlock: a lease was lost", le.name.Key, "fence", le.Fence(), "held", age, "reason", reason)
	switch {
	case reason == errDeadline:
		// The service may keep the lock for long if a renewal's answer was lost. Work that has just been told to stop is
		// left the margin that it was promised, though.
		l.cleaner.Cancel(driver.AcquireRequest{Name: le.name, Owner: le.owner, TTL: le.ttl}, trust.Margin(le.trust.Term()))
	case le.doubt: // a copy of an acquire may still come
		l.cleaner.Cancel(driver.AcquireRequest{Name: le.name, Owner: le.owner, TTL: le.ttl}, 0)
	}
	l.forget(le) // ⚑ last: Close waits for the leases, and then for their clean-ups and reports
	return le.ended
}

// Release ends the lease and releases the lock, also with a cancelled ctx. It waits for the step of
// Guard under way while ctx lasts, for at most a TTL. Releasing a nil or released lease is no error.
//
// Release fails with [ErrLost], [ErrUnavailable] or [ErrRefused] if nothing was released,
// [ErrOutcomeUnknown] if the answer is lost, or [ErrClosed]. In each case the lease is over, and the
// lock expires. Another Release tries again.
func (le *Lease) Release(ctx context.Context) error {
	if le == nil {
		return nil
	}
	return le.release(ctx, errReleased)
}
