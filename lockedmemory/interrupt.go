package lockedmemory

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// interrupting is the Do of a turn with the policy [Interrupt]. ⚑ A message arrives before it waits: an older
// one that waits would end it. ⚑ After a wait, the message may have been superseded.
func (m *LockedMemory[M, D]) interrupting(of message) func(context.Context, string, func(context.Context) error,
	...distlock.CallOption) error {
	return func(ctx context.Context, key string, fn func(context.Context) error, opts ...distlock.CallOption) error {
		if _, joins := m.locker.FromContext(ctx, key); joins {
			return m.locker.Do(ctx, key, fn, opts...)
		}
		if of.hash != "" {
			if _, decided, _, err := m.store.CloseMessage(ctx, "", of.hash, 0, 0, 0); err != nil {
				return err
			} else if decided {
				return of.read(ctx)
			}
		}
		began := false
		err := m.locker.TryDo(ctx, key, func(ctx context.Context) error {
			began = true
			return fn(ctx)
		}, opts...)
		if began || !errors.Is(err, distlock.ErrNotAcquired) {
			return err
		}
		waiting, leave := context.WithCancel(ctx)
		defer leave()
		looking, stop := context.WithCancel(ctx)
		var looks sync.WaitGroup
		asked, decided := "", false
		looks.Go(func() {
			if asked, decided = m.endTurns(looking, key, of.hash); decided {
				leave()
			}
		})
		end := func() { stop(); looks.Wait() }
		defer end()
		err = m.locker.Do(waiting, key, func(ctx context.Context) (err error) {
			if end(); !decided && (asked != "" || of.hash != "") {
				lease, _ := m.locker.FromContext(ctx, key)
				// ⚑ The work that was asked may have failed in its grace.
				_, decided, _, err = m.store.CloseMessage(ctx, asked, of.hash, lease.Fence(), 0, 0)
			}
			if decided || err != nil {
				return err
			}
			began = true
			return fn(ctx)
		}, opts...)
		if end(); decided && !began {
			return of.read(ctx)
		}
		return err
	}
}

// lookEvery is how often a waiter with the policy Interrupt looks at the holder.
const lookEvery = 250 * time.Millisecond

// endTurns ends the turns that a message waits for, until ctx ends, or the message is decided. It returns the
// work that it has asked last.
func (m *LockedMemory[M, D]) endTurns(ctx context.Context, key, by string) (asked string, decided bool) {
	for {
		again := lookEvery
		seen, err := m.ask(ctx, key, driver.AskRequest{})
		switch work := seen.State.Metadata[driver.WorkKey]; {
		case err != nil, !seen.State.Held, by != "" && work == by: // a copy of the message waits for its answer
		case seen.State.Age < m.opts.After:
			again = m.opts.After - seen.State.Age
		default:
			isAsked, decided := m.endTurn(ctx, key, work, by, seen.Fence)
			if decided {
				return "", true
			} else if isAsked {
				asked = work
			}
		}
		if !pause(ctx, again) {
			return asked, false
		}
	}
}

// endTurn asks the holder that shows a token, and supersedes its message. ⚑ Without a grace, it closes first:
// the work would find its message open. ⚑ A Close has a bound: a late copy would end a redelivery.
func (m *LockedMemory[M, D]) endTurn(ctx context.Context, key, work, by string, shown int64) (asked, decided bool) {
	if work != "" {
		first := work
		if m.opts.Grace > 0 {
			first = ""
		}
		if _, decided, _, err := m.store.CloseMessage(ctx, first, by, shown+1, 0, 0); decided || err != nil {
			return false, decided
		}
	}
	reply, err := m.ask(ctx, key, driver.AskRequest{Fence: shown})
	asked = err == nil && reply.Asked
	if asked && work != "" && m.opts.Grace > 0 && pause(ctx, m.opts.Grace) {
		_, decided, _, _ = m.store.CloseMessage(ctx, work, by, reply.Fence+1, 0, 0)
	}
	return asked, decided
}

// pause reports whether ctx has lasted.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(max(d, 1)):
		return true
	case <-ctx.Done():
		return false
	}
}
