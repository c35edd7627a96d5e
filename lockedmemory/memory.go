package lockedmemory

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// Memory is a conversation memory with messages of type M and search results of type D. Beluga AI's memory.Memory is a
// Memory[schema.Message, schema.Document].
type Memory[M, D any] interface {
	// Save appends one exchange: what came in and what was answered.
	Save(ctx context.Context, input, output M) error
	// Load returns the history; what query means is up to the memory.
	Load(ctx context.Context, query string) ([]M, error)
	// Search returns up to k results for query.
	Search(ctx context.Context, query string, k int) ([]D, error)
	// Clear forgets the history.
	Clear(ctx context.Context) error
}

// KeyFunc tells from the context of a call which session it belongs to. It is called once or more per operation and
// should be quick. A KeyFunc that returns an error or "" makes Save, Clear and Turn fail: there is no lock that all
// sessions without a name share.
type KeyFunc func(ctx context.Context) (string, error)

// FixedKey is the KeyFunc of a memory that serves one session.
func FixedKey(key string) KeyFunc {
	return func(context.Context) (string, error) { return key, nil }
}

// Options configure a [LockedMemory]. Nil means the defaults.
type Options struct {
	// Wait is how long a Turn, and a Save or Clear outside a turn, waits for its session at most.
	// An earlier end of ctx ends the wait too. Default: [DefaultWait], because the turn in front may take
	// minutes. Negative: ctx alone decides. distlock.Options.Wait has no effect.
	Wait time.Duration
	// Busy is what a Turn does when its session is busy. Default [Wait]. It concerns Turn alone: Save and
	// Clear outside a turn always wait.
	Busy BusyPolicy
	// FailOpen lets Save, Clear and Turn run without the lock where they would fail with
	// distlock.ErrUnavailable: two instances may then write to one session at once. Every operation
	// that ran so is marked: in the log, with a warning, and for the Observer, as Unlocked. Every
	// other error is returned: a busy lock, a lost lease, distlock.ErrRefused,
	// distlock.ErrOutcomeUnknown. Default: nothing is written without the lock. An inner memory
	// that checks fencing tokens, see [Fenced], cannot have it.
	FailOpen bool
}

// DefaultWait is the default of Options.Wait.
const DefaultWait = 5 * time.Minute

// BusyPolicy is what a Turn does when its session is busy: with another turn, or a Save or Clear outside one.
type BusyPolicy int

const (
	// Wait lets a Turn queue, first come first served, for as long as its ctx and Options.Wait allow.
	Wait BusyPolicy = iota
	// Refuse lets a Turn fail at once, with a *distlock.BusyError: for a service that answers "one moment" and drops the
	// message, or has its sender repeat it. The lock service is asked once, and no waiter is overtaken.
	Refuse
)

// Fenced is implemented by an inner memory that may need the fencing token of a lease for every write.
type Fenced interface {
	// Fenced reports whether the memory refuses writes without a lease. Then its Save and Clear also name
	// the outcome: nil means that the write stands, and an error matches distlock.ErrOutcomeUnknown if
	// anything may have been written.
	Fenced() bool
}

// Selective is implemented by an inner memory that does not work under every Locker.
type Selective interface {
	// AcceptsLocker returns nil, or an error that says why the memory does not work under locker and what to
	// do. [New] then fails with distlock.ErrInvalidOption.
	AcceptsLocker(locker *distlock.Locker) error
}

// LockedMemory is a [Memory] that works under its session's lock. It is safe for concurrent use if the inner memory is.
type LockedMemory[M, D any] struct {
	inner  Memory[M, D]
	locker *distlock.Locker
	key    KeyFunc
	opts   Options
	fenced bool // see Fenced
}

// New puts locker in front of inner; key says which session a call belongs to. Operations of the memory are
// reported to the Locker's Observer. A nil inner, locker or key, options out of range and a Locker that
// inner does not accept, see [Selective], are refused with distlock.ErrInvalidOption.
func New[M, D any](inner Memory[M, D], locker *distlock.Locker, key KeyFunc, opts *Options) (*LockedMemory[M, D], error) {
	switch {
	case isNil(inner):
		return nil, fmt.Errorf("%w: the inner memory is nil: give the memory that is to be locked", distlock.ErrInvalidOption)
	case locker == nil:
		return nil, fmt.Errorf("%w: the Locker is nil: make one with redislock.New or memlock.New", distlock.ErrInvalidOption)
	case key == nil:
		return nil, fmt.Errorf("%w: the KeyFunc is nil: use FixedKey for a memory of one session", distlock.ErrInvalidOption)
	}
	if selective, ok := any(inner).(Selective); ok {
		if err := selective.AcceptsLocker(locker); err != nil {
			return nil, fmt.Errorf("%w: the inner memory does not work under this Locker: %w", distlock.ErrInvalidOption, err)
		}
	}
	m := &LockedMemory[M, D]{inner: inner, locker: locker, key: key}
	if opts != nil {
		m.opts = *opts
	}
	if fenced, ok := any(inner).(Fenced); ok {
		m.fenced = fenced.Fenced()
	}
	switch {
	case m.opts.FailOpen && m.fenced:
		return nil, fmt.Errorf("%w: FailOpen is set, but the inner memory checks fencing tokens and refuses writes without a lease: "+
			"leave FailOpen off", distlock.ErrInvalidOption)
	case m.opts.Busy != Wait && m.opts.Busy != Refuse:
		return nil, fmt.Errorf("%w: Busy is %d, which is no BusyPolicy: use Wait or Refuse", distlock.ErrInvalidOption, m.opts.Busy)
	}
	m.opts.Wait = cmp.Or(m.opts.Wait, DefaultWait)
	return m, nil
}

// isNil also sees a nil pointer in an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return r.IsNil()
	default:
		return false
	}
}

// Save runs the inner memory's Save under the session's lock: that of the [LockedMemory.Turn] or Locker.Do around it, or
// one of its own. The inner call gets a context that carries the lease, see [Lease], and is cancelled when the
// lease is lost.
//
// After an error of distlock.Locker.Acquire and after [ErrTurnID], nothing was written. Otherwise Save
// fails with the error of the inner Save, with distlock.ErrLost if the lease was lost while the inner
// Save ran, or with distlock.ErrClosed if the Locker was closed. The last two come with
// distlock.ErrOutcomeUnknown, unless the inner Save names the outcome of the write. A [Fenced] memory
// always does: if its Save returns nil, Save returns nil, even if the lease was lost during the write.
// A lock that could not be released after a successful Save is no failure of Save.
func (m *LockedMemory[M, D]) Save(ctx context.Context, input, output M) error {
	return m.step(ctx, OpSave, func(ctx context.Context) error { return m.inner.Save(ctx, input, output) })
}

// Clear runs the inner memory's Clear under the session's lock, with the errors of [LockedMemory.Save].
func (m *LockedMemory[M, D]) Clear(ctx context.Context) error {
	return m.step(ctx, OpClear, m.inner.Clear)
}

// Load asks the inner memory, without a lock. Under a lease that has ended, as after a Turn that took too long, it
// fails with distlock.ErrLost or distlock.ErrNotHeld.
func (m *LockedMemory[M, D]) Load(ctx context.Context, query string) ([]M, error) {
	ctx, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	return m.inner.Load(ctx, query)
}

// Search asks the inner memory, as Load does.
func (m *LockedMemory[M, D]) Search(ctx context.Context, query string, k int) ([]D, error) {
	ctx, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	return m.inner.Search(ctx, query, k)
}
