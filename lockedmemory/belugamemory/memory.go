package belugamemory

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/services"
)

var _ core.Lifecycle = (*Memory)(nil)

// Memory is a memory of Beluga with a lock for each session. Save and Clear run under the lock.
// [Memory.Turn] runs a whole turn under the lock. The errors of the lock have codes of package
// core. It is safe for concurrent use if the inner memory is. It is a core.Lifecycle.
type Memory struct {
	locker  *distlock.Locker
	locked  *lockedmemory.LockedMemory[schema.Message, schema.Document]
	closed  atomic.Bool
	servers *services.Servers // of New; nil if the Locker belongs to the caller
}

// Wrap puts locker in front of inner, any memory of Beluga. The key function finds the session of a call:
//
//   - lockedmemory.FixedKey for a memory that keeps one conversation, as all memories of Beluga do. Make
//     one memory for each conversation of each tenant, with different keys.
//   - [SessionKey] for a memory that keeps the sessions and tenants of contexts apart. Otherwise all of
//     them read one history.
//
// A nil opts means defaults. The caller closes the locker. Wrap fails with distlock.ErrInvalidOption if
// inner, locker or key is nil, or if an option is out of range.
//
// The hooks of a middleware of Beluga inside run under the lock. A middleware around the Memory hides the
// method Turn: call Turn on the Memory itself.
func Wrap(inner memory.Memory, locker *distlock.Locker, key lockedmemory.KeyFunc, opts *lockedmemory.Options) (*Memory, error) {
	locked, err := lockedmemory.New(inner, locker, key, opts)
	if err != nil {
		return nil, codes.Of("belugamemory.wrap", err)
	}
	return &Memory{locker: locker, locked: locked}, nil
}

// Save appends one exchange under the session's lock, as lockedmemory.LockedMemory does. It has no ID: a
// repeated Save is stored again. Use [Memory.SaveOnce] or [Memory.Answer] where a message may come twice.
func (m *Memory) Save(ctx context.Context, input, output schema.Message) error {
	return m.store("belugamemory.save", func() error { return m.locked.Save(ctx, input, output) }, input, output)
}

// Load returns the history, without a lock. Inside a [Memory.Turn] no other instance changes it.
func (m *Memory) Load(ctx context.Context, query string) ([]schema.Message, error) {
	return ask(m, "belugamemory.load", func() ([]schema.Message, error) { return m.locked.Load(ctx, query) })
}

// Search asks the inner memory, without a lock.
func (m *Memory) Search(ctx context.Context, query string, k int) ([]schema.Document, error) {
	return ask(m, "belugamemory.search", func() ([]schema.Document, error) { return m.locked.Search(ctx, query, k) })
}

// Clear removes the session's history, under the session's lock.
func (m *Memory) Clear(ctx context.Context) error {
	return m.write("belugamemory.clear", func() error { return m.locked.Clear(ctx) })
}

// Turn runs fn, one turn of the conversation, under the session's lock: no other instance works on
// the session until fn has returned. Load, answer and Save inside fn, with fn's context. Turn
// returns the error of fn unchanged, unless the lease was lost. See lockedmemory.LockedMemory.Turn.
func (m *Memory) Turn(ctx context.Context, fn func(ctx context.Context) error) error {
	return codes.Under("belugamemory.turn", func(fn codes.Step) error {
		if err := m.usable(); err != nil {
			return err
		}
		return m.locked.Turn(ctx, fn)
	}, fn)
}

// ask makes a call that needs no lock. Its error has a code.
func ask[T any](m *Memory, op string, call func() (T, error)) (found T, err error) {
	if err = m.usable(); err == nil {
		found, err = call()
	}
	return found, codes.Of(op, err)
}

// write makes a call that takes the session's lock. Its error has a code.
func (m *Memory) write(op string, call func() error) error {
	err := m.usable()
	if err == nil {
		err = call()
	}
	return codes.Of(op, err)
}

// usable fails after Close.
func (m *Memory) usable() error {
	if m.closed.Load() {
		return distlock.ErrClosed
	}
	return nil
}

// Close ends the memory: later calls fail with distlock.ErrClosed. Close of the last memory that
// [New] has made for a URL releases the leases and closes the connections. For mem:// it removes
// the sessions. Call Close when the process ends. A Locker that was given to [Wrap] stays open.
//
// If ctx ends first, Close returns its error, and the work continues in the background. A lease
// that is not released expires with its TTL. A second Close returns nil at once.
func (m *Memory) Close(ctx context.Context) error {
	if m.closed.Swap(true) || m.servers == nil {
		return nil
	}
	var err error
	for _, ended := range m.servers.Leave() {
		select {
		case failed := <-ended:
			err = errors.Join(err, failed)
		case <-ctx.Done():
			return codes.Of("belugamemory.close", ctx.Err())
		}
	}
	return codes.Of("belugamemory.close", err)
}

// Start fails if the lock service does not answer. A closed memory fails with distlock.ErrClosed.
func (m *Memory) Start(ctx context.Context) error {
	err := m.usable()
	if err == nil {
		err = m.locker.Ping(ctx)
	}
	return codes.Of("belugamemory.start", err)
}

// Stop is [Memory.Close].
func (m *Memory) Stop(ctx context.Context) error { return m.Close(ctx) }

// Health reports unhealthy if Start fails or takes more than 5 s.
func (m *Memory) Health() core.HealthStatus { return services.Health(m.Start) }

// Locker returns the memory's Locker. Saves in a run of a belugarunner.Runner with the same Locker are
// part of the run.
func (m *Memory) Locker() *distlock.Locker { return m.locker }
