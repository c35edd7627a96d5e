package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/cleanup"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// Lease is a right to a key. It is renewed, and safe for concurrent use.
type Lease struct {
	grant    *grant
	fence    atomic.Int64 // Kleppmann, "How to do distributed locking", 2016
	metadata map[string]string
	acquired time.Time
	ctx      context.Context
	cancel   context.CancelCauseFunc
	work     context.Context // ends with ctx, or when the holder is asked
	endWork  context.CancelCauseFunc
	guard    chan struct{}  // holds a token while a step of Guard runs
	removal  chan struct{}  // holds a token while a call of Release ends the lease, and removes the lock
	attached sync.Map       // see fencing.Attach
	awaited  atomic.Int64   // see fencing.Awaited
	since    int64          // see fencing.Since
	begun    sync.WaitGroup // until the acquire has ended for the Observer

	ending // guarded by grant.mu
}

// ending is how far a lease has come to its end.
type ending struct {
	state      leaseState
	endReason  error     // why the lease is not held any more
	until      time.Time // the deadline at a handoff
	lastWrite  lastWriteState
	asked      bool  // its work is to end
	lastTTL    bool  // it was renewed after the ask, and is renewed no more
	removalErr error // the error of Release once removed; not nil if the lease may have been lost before
}

type leaseState int

const (
	held leaseState = iota
	releasing
	released // on this side
	removed  // in the backend, too, or handed off
	lost
)

// lastWriteState is how far the last write is, see releaseWith.
type lastWriteState int

const (
	noLastWrite lastWriteState = iota
	lastWriteSent
	releasedByWrite
)

// newLease makes a lease of the grant for an acquisition.
func (g *grant) newLease(a *acquisition, fence int64, at time.Time) *Lease {
	le := &Lease{
		grant:    g,
		metadata: a.op.Metadata,
		acquired: at,
		guard:    make(chan struct{}, 1),
		removal:  make(chan struct{}, 1),
	}
	le.begun.Add(1)
	le.fence.Store(fence)
	le.awaited.Store(a.awaited.Load())
	le.since = cmp.Or(a.awaited.Load(), fence)
	of := context.WithValue(context.WithoutCancel(a.caller), le.contextKey(), le)
	var cancel context.CancelCauseFunc
	le.ctx, cancel = context.WithCancelCause(of)
	le.work, le.endWork = context.WithCancelCause(of)
	le.cancel = func(cause error) { cancel(cause); le.endWork(cause) }
	return le
}

// Key returns the key of the lease.
func (le *Lease) Key() string { return le.grant.name.Key }

// Fence returns the fencing token: below 2^53, above all earlier ones.
func (le *Lease) Fence() int64 { return le.fence.Load() }

// Context has the values of the context given to Acquire, and no other end than [ErrLost],
// [ErrInterrupted], or [ErrNotHeld] after a release.
func (le *Lease) Context() context.Context { return le.work }

// Deadline returns when the lease ends unless a renewal or Extend moves it.
func (le *Lease) Deadline() time.Time {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	if le != le.grant.holder {
		return le.until
	}
	at := time.Now()
	return at.Add(le.grant.trust.Left(trust.At(at)))
}

// Err returns nil while the lease is held. Else it is [ErrLost] or [ErrNotHeld].
func (le *Lease) Err() error {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	return le.errLocked()
}

func (le *Lease) errLocked() error {
	switch {
	case le.isOver():
		return le.endReason
	case le.lastWrite == releasedByWrite: // also after its deadline
		return fmt.Errorf("%w: the last write of a store has released the lock", ErrNotHeld)
	case le.grant.trust.Over(trust.Now()):
		return le.lossLocked(errDeadline)
	}
	return nil
}

var (
	errDeadline = errors.New("its deadline passed before it was renewed, or this process was paused; " +
		"check the lock service and its latency, or use a longer TTL")
	errNotMine = errors.New("the lock service does not know it any more; " +
		"the lock expired there, an operator ended it (lockctl release), or the service lost its data")
	errLastWrite = errors.New("the last write of a store, which may release the lock, is under way or had no answer: " +
		"release the lease")
)

func (e *ending) isOver() bool { return e.state >= released }

// lossLocked turns a held lease into a lost lease. It cancels the context first. The reports call the
// hooks.
func (le *Lease) lossLocked(reason error) error {
	le.state = lost
	le.endReason = fmt.Errorf("%w: %w", ErrLost, reason)
	le.cancel(ErrLost)
	g, l := le.grant, le.grant.locker
	g.stopLocked()
	at := time.Now()
	age := at.Sub(le.acquired)
	g.inQueue.End(true)
	le.report(le.ctx, &Operation{Name: OpLost, Key: g.name.Key, Fence: le.Fence(),
		Began: at, Ended: true, Held: age, Err: le.endReason, Outcome: OutcomeLost}, true)
	l.log(le.ctx, slog.LevelWarn, "distlock: a lease was lost", g.name.Key,
		"fence", le.Fence(), "held_ms", age.Milliseconds(), "reason", reason)
	if reason == errDeadline || g.copiesMayArrive {
		// The backend may keep the lock for long if the answer to a renewal was lost. The cancelled work
		// keeps its margin.
		l.cleaner.Add(driver.ReleaseRequest{Name: g.name, Owner: g.owner, Tombstone: cleanup.Tombstone(g.ttl)},
			max(g.ttl, g.changed), trust.Margin(g.trust.Term()))
	}
	l.forget(g) // ⚑ last: Close waits for the grants, and then for their clean-ups and reports
	return le.endReason
}

// Release ends the lease and releases the lock, also with a cancelled ctx or that of the lease. It
// waits for a step of Guard while ctx lasts, at most a TTL, but not inside it. A nil or released
// lease is no error. Errors: [ErrLost], [ErrUnavailable] or [ErrRefused] if nothing was released,
// [ErrOutcomeUnknown] if the answer is lost, [ErrClosed]. Then the lock expires.
func (le *Lease) Release(ctx context.Context) error {
	if le == nil {
		return nil
	}
	return le.release(ctx, errReleased)
}
