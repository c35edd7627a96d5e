package belugamemory

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
)

var _ memory.Memory = (*Memory)(nil)
var _ core.Lifecycle = (*Memory)(nil)

// Memory is a memory of Beluga that works under its session's lock: Save and Clear run alone, whole
// turns do in [Memory.Turn]. The errors of the lock have codes of package core. It is safe for
// concurrent use if the inner memory is, and it is a core.Lifecycle, for a core.App.
type Memory struct {
	locked *lockedmemory.LockedMemory[schema.Message, schema.Document]
	locker *distlock.Locker
	key    lockedmemory.KeyFunc
	closed atomic.Bool

	service *service // of New; nil if the Locker is the caller's
}

// Wrap puts locker in front of inner, any memory of Beluga. All sessions would share inner: wrap one
// memory for each conversation, with [WithSessionID], or give [WithInnerSeparatesSessions]. The
// caller closes the locker. A missing option of these two, a nil inner or locker, and options out of
// range are refused with distlock.ErrInvalidOption.
func Wrap(inner memory.Memory, locker *distlock.Locker, opts ...Option) (*Memory, error) {
	s, err := settingsOf(locker, opts, forMemories)
	if err != nil {
		return nil, coded("belugamemory.wrap", err)
	}
	return wrap(inner, locker, s)
}

func wrap(inner memory.Memory, locker *distlock.Locker, s settings) (*Memory, error) {
	opts := lockedmemory.Options{Wait: s.wait, Busy: s.busy, FailOpen: s.failOpen}
	locked, err := lockedmemory.New(inner, locker, s.key, &opts)
	if err != nil {
		return nil, coded("belugamemory.wrap", err)
	}
	return &Memory{locked: locked, locker: locker, key: s.key}, nil
}

// Middleware is [Wrap] for memory.ApplyMiddleware. A memory that it cannot wrap, such as nil, becomes
// one whose every operation fails with the reason.
//
// The first middleware is the outermost. For whole turns with [Turn], let this one come first. Hooks
// after this one run under the lock. With memory.WithTracing before this one, the span memory.save
// includes the wait for the lock.
func Middleware(locker *distlock.Locker, opts ...Option) (memory.Middleware, error) {
	s, err := settingsOf(locker, opts, forMemories)
	if err != nil {
		return nil, coded("belugamemory.middleware", err)
	}
	return func(inner memory.Memory) memory.Memory {
		m, err := wrap(inner, locker, s)
		if err != nil {
			return failing{err}
		}
		return m
	}, nil
}

// failing is a memory that cannot be wrapped.
type failing struct{ err error }

func (f failing) Save(context.Context, schema.Message, schema.Message) error     { return f.err }
func (f failing) Load(context.Context, string) ([]schema.Message, error)         { return nil, f.err }
func (f failing) Search(context.Context, string, int) ([]schema.Document, error) { return nil, f.err }
func (f failing) Clear(context.Context) error                                    { return f.err }
func (f failing) Turn(context.Context, func(ctx context.Context) error) error    { return f.err }

// Save appends one exchange under the session's lock, as lockedmemory.LockedMemory does.
func (m *Memory) Save(ctx context.Context, input, output schema.Message) error {
	err := m.writes(ctx)
	if err == nil {
		err = afterSave(ctx, m.locked.Save(ctx, input, output))
	}
	return coded("belugamemory.save", err)
}

// Load returns the history, without a lock. Inside a [Memory.Turn], it stays as it is until the Save.
func (m *Memory) Load(ctx context.Context, query string) ([]schema.Message, error) {
	return unlocked(m, "belugamemory.load", func() ([]schema.Message, error) { return m.locked.Load(ctx, query) })
}

// Search asks the inner memory, as Load does.
func (m *Memory) Search(ctx context.Context, query string, k int) ([]schema.Document, error) {
	return unlocked(m, "belugamemory.search", func() ([]schema.Document, error) { return m.locked.Search(ctx, query, k) })
}

func unlocked[T any](m *Memory, op string, from func() ([]T, error)) ([]T, error) {
	if m.closed.Load() {
		return nil, coded(op, distlock.ErrClosed)
	}
	found, err := from()
	if err != nil && m.closed.Load() {
		err = fmt.Errorf("%w: %w", distlock.ErrClosed, err)
	}
	return found, coded(op, err)
}

// Clear forgets the session's history, under its lock.
func (m *Memory) Clear(ctx context.Context) error {
	err := m.writes(ctx)
	if err == nil {
		err = m.locked.Clear(ctx)
	}
	return coded("belugamemory.clear", err)
}

// Turn runs fn, one turn of the conversation, alone: no other instance works on the session until fn
// has returned. Load, answer and Save inside fn, with fn's context. The error of fn comes back as it
// is, unless the lease was lost. See lockedmemory.LockedMemory.Turn for all that it promises.
func (m *Memory) Turn(ctx context.Context, fn func(ctx context.Context) error) error {
	return under("belugamemory.turn", func(fn step) error {
		if err := m.writes(ctx); err != nil {
			return err
		}
		return m.locked.Turn(ctx, fn)
	}, fn)
}

// writes returns why a call must not wait for the session's lock: the memory is closed, or the run or
// turn around the call has that very lock through another Locker.
func (m *Memory) writes(ctx context.Context) error {
	if m.closed.Load() {
		return distlock.ErrClosed
	}
	lease, _ := lockedmemory.Lease(ctx)
	if r := runOf(ctx); r != nil {
		lease = r.lease
	}
	if lease == nil || fencing.Locker(lease) == m.locker || fencing.Backend(fencing.Locker(lease)) != fencing.Backend(m.locker) {
		return nil
	}
	outer := fencing.Options(fencing.Locker(lease))
	if key, err := m.key(ctx); err != nil || key != lease.Key() || outer.Namespace != fencing.Options(m.locker).Namespace {
		return nil
	}
	info, err := m.locker.Inspect(ctx, lease.Key()) // which may be on another server
	if err != nil || !info.Held || info.Holder != outer.Holder || info.Fence > lease.Fence() {
		return nil
	}
	return &selfError{fmt.Errorf("the run or turn around this call holds the session's lock through another Locker: " +
		"give both the same one, see Memory.Locker"), distlock.BusyError{Self: true, Holder: outer.Holder, Held: info.Age}}
}

// Close ends the memory: its calls fail with distlock.ErrClosed from then on. The Close of the last
// memory that [New] has made for a URL releases the leases and ends the connections, or the sessions
// of mem://. Call it when the process ends. A Locker that was given to [Wrap] stays open.
//
// If ctx ends first, Close returns its error, and the work goes on in the background. Leases that
// are not released expire with their TTL. A second Close returns nil at once.
func (m *Memory) Close(ctx context.Context) error {
	if m.closed.Swap(true) || m.service == nil {
		return nil
	}
	select {
	case err := <-m.service.leave():
		return coded("belugamemory.close", err)
	case <-ctx.Done():
		return coded("belugamemory.close", ctx.Err())
	}
}

// Start asks whether the lock service answers. A closed memory does not start: distlock.ErrClosed.
func (m *Memory) Start(ctx context.Context) error {
	err := distlock.ErrClosed
	if !m.closed.Load() {
		_, err = m.locker.Inspect(ctx, "belugamemory")
	}
	return coded("belugamemory.start", err)
}

// Stop is [Memory.Close].
func (m *Memory) Stop(ctx context.Context) error { return m.Close(ctx) }

// Health is unhealthy if Start fails or takes more than 5 s.
func (m *Memory) Health() core.HealthStatus {
	ctx, cancel := context.WithTimeout(context.Background(), defaultTimeout)
	defer cancel()
	if err := m.Start(ctx); err != nil {
		return core.HealthStatus{Status: core.HealthUnhealthy, Message: err.Error(), Timestamp: time.Now()}
	}
	return core.HealthStatus{Status: core.HealthHealthy, Timestamp: time.Now()}
}

// Locker returns the memory's Locker. Saves are part of a run whose [LockRun] has the same one.
func (m *Memory) Locker() *distlock.Locker { return m.locker }

// Turn runs fn as one turn of mem's session, see [Memory.Turn]. It is for a mem from
// memory.New("locked", …), or from a [Middleware] that was the first. Middleware of others before it
// hides the turns: Turn then fails with distlock.ErrInvalidOption, and fn is not run.
func Turn(ctx context.Context, mem memory.Memory, fn func(ctx context.Context) error) error {
	turner, ok := mem.(interface {
		Turn(context.Context, step) error
	})
	if !ok {
		return coded("belugamemory.turn", invalid("a %T has no turns: give the memory of memory.New(\"locked\", …) or Wrap, "+
			"or let the locking middleware be the first", mem))
	}
	return turner.Turn(ctx, fn)
}
