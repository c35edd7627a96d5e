package lockedmemory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// Memory is a conversation memory with messages of type M and search results of type D. Beluga AI's
// memory.Memory is a Memory[schema.Message, schema.Document].
type Memory[M, D any] interface {
	// Save appends one exchange: a message and its answer.
	Save(ctx context.Context, input, output M) error
	// Load returns the history. The memory defines the meaning of query.
	Load(ctx context.Context, query string) ([]M, error)
	// Search returns up to k results for query.
	Search(ctx context.Context, query string, k int) ([]D, error)
	// Clear deletes the history.
	Clear(ctx context.Context) error
}

// Options configure a [LockedMemory]. Nil means the defaults.
type Options struct {
	// Wait is the longest wait of a Turn, and of a write outside a turn. distlock.Options.Wait has no effect.
	// Default: [DefaultWait]. Negative: ctx alone decides.
	Wait time.Duration
	// Busy is what a Turn does if its session is busy. Default [Queue]. Writes outside a turn always wait.
	Busy BusyPolicy
	// Grace is the time that [Interrupt] leaves a running Answer to return, and to be stored. Default: none.
	// At most the TTL of the Locker.
	Grace time.Duration
	// After is the age from which Interrupt ends a running turn: a stream of messages may otherwise interrupt
	// every answer. Default: none.
	After time.Duration
}

// DefaultWait is the default of Options.Wait.
const DefaultWait = 5 * time.Minute

// BusyPolicy is what a Turn does if its session is busy.
type BusyPolicy int

const (
	// Queue lets a Turn wait in the order of arrival, as long as its ctx and Options.Wait allow.
	Queue BusyPolicy = iota
	// Refuse lets a Turn fail at once with a *distlock.BusyError. It overtakes no waiter.
	Refuse
	// Interrupt lets a Turn end the running one, and wait for the lease. The message of a running Answer is
	// superseded, unless its answer is stored within Grace. Of messages that wait, the newest is answered. The
	// Answers of the others return [ErrSuperseded]. A repeated message waits for its own answer. Interrupt
	// needs a session store, and no Redlock.
	Interrupt
)

// LockedMemory is a [Memory] under its session's lock. It is safe for concurrent use if the inner memory
// is.
//
// All methods but Save, Load, Search, Clear and Turn need a session store, and fail with
// errors.ErrUnsupported in front of another memory. The store, a sessionstore.Store, states their contracts.
type LockedMemory[M, D any] struct {
	inner  Memory[M, D]
	store  sessionStore[M] // inner, or nil for a memory of another kind
	locker *distlock.Locker
	key    KeyFunc
	opts   Options
}

// New puts locker in front of inner; key returns the session of a call. The Locker's Observer sees the
// operations of the memory. New fails with distlock.ErrInvalidOption if inner, locker or key is nil, an
// option is out of range, or the inner memory does not work under the Locker.
func New[M, D any](inner Memory[M, D], locker *distlock.Locker, key KeyFunc, opts *Options,
) (*LockedMemory[M, D], error) {
	o := *cmp.Or(opts, &Options{})
	switch {
	case isNil(inner):
		return nil, fmt.Errorf("%w: the inner memory is nil: give the memory that is to be locked", distlock.ErrInvalidOption)
	case locker == nil:
		return nil, fmt.Errorf("%w: the Locker is nil: make one with redislock.New or memlock.New", distlock.ErrInvalidOption)
	case key == nil:
		return nil, fmt.Errorf("%w: the KeyFunc is nil: use FixedKey for a memory of one session", distlock.ErrInvalidOption)
	case o.Busy < Queue || o.Busy > Interrupt:
		return nil, fmt.Errorf("%w: Busy is %d, which is no BusyPolicy: use Queue, Refuse or Interrupt",
			distlock.ErrInvalidOption, o.Busy)
	case o.Grace < 0 || o.After < 0 || o.Grace > fencing.Options(locker).TTL:
		return nil, fmt.Errorf("%w: Grace is %s and After is %s, but must not be negative, and Grace at most the TTL of the Locker",
			distlock.ErrInvalidOption, o.Grace, o.After)
	}
	o.Wait = cmp.Or(o.Wait, DefaultWait)
	m := &LockedMemory[M, D]{inner: inner, locker: locker, key: key, opts: o}
	if store, ok := inner.(sessionStore[M]); ok {
		if err := store.AcceptsLocker(locker); err != nil {
			return nil, fmt.Errorf("%w: the inner memory does not work under this Locker: %w", distlock.ErrInvalidOption, err)
		}
		m.store = store
	}
	if _, asks := driver.As[driver.Asker](fencing.Driver(locker)); o.Busy == Interrupt && (m.store == nil || !asks) {
		return nil, fmt.Errorf("%w: %w: Interrupt needs a session store, and locks other than a Redlock: use Queue or Refuse",
			distlock.ErrInvalidOption, errors.ErrUnsupported)
	}
	return m, nil
}

// isNil also finds a nil pointer in an interface.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// Save runs the inner memory's Save under the session's lock: that of the Turn or Do around it, or its
// own. The inner context carries the lease, see [Lease], and ends when the lease is lost.
//
// After an error of distlock.Locker.Acquire, nothing was written. Otherwise Save returns the error of the
// inner Save. If the lease ended during that Save, the error is distlock.ErrLost or distlock.ErrClosed, with
// distlock.ErrOutcomeUnknown. The errors of a session store state the outcome alone.
func (m *LockedMemory[M, D]) Save(ctx context.Context, input, output M) error {
	return m.step(ctx, OpSave, func(ctx context.Context) error { return m.inner.Save(ctx, input, output) })
}

// Clear runs the inner memory's Clear as [LockedMemory.Save] does.
func (m *LockedMemory[M, D]) Clear(ctx context.Context) error {
	return m.step(ctx, OpClear, m.inner.Clear, fencing.Frees())
}

// Load calls the inner memory without a lock. Under a lease that has ended, as after its Turn, it fails
// with distlock.ErrLost or distlock.ErrNotHeld.
func (m *LockedMemory[M, D]) Load(ctx context.Context, query string) (messages []M, err error) {
	load := func(ctx context.Context, _ *distlock.Operation) error {
		ctx, err := m.read(ctx)
		if err == nil {
			messages, err = m.inner.Load(ctx, query)
		}
		return err
	}
	key, failure := m.key(ctx)
	if key != "" && failure == nil {
		err = m.reported(ctx, OpLoad, key, load)
	} else { // the inner memory decides whether a read needs a session
		err = load(ctx, nil)
	}
	return messages, err
}

// Search calls the inner memory, as Load does.
func (m *LockedMemory[M, D]) Search(ctx context.Context, query string, k int) ([]D, error) {
	ctx, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	return m.inner.Search(ctx, query, k)
}
