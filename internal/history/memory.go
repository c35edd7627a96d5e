package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// Memory is a memory of messages that are strings, whose calls are recorded. It stands in front of what callers use: a LockedMemory, or,
// for writes past all checks, a store with the context of a turn.
type Memory struct {
	lockedmemory.Memory[string, string]
	Recorder *Recorder
	Key      string
}

// answer is what the output of an entry begins with; its input follows.
const answer = "answer to "

// Save saves an entry, whose name belongs to this Save, or to it and those that repeat it under one turn ID.
func (m Memory) Save(ctx context.Context, entry string) error {
	id, _ := lockedmemory.TurnID(ctx)
	p := m.Recorder.Begin(Op{Kind: Save, Key: m.Key, Fence: fence(ctx), Entry: entry, Turn: id})
	err := m.Memory.Save(ctx, entry, answer+entry)
	p.answered(ctx, err)
	return err
}

// Clear clears the session.
func (m Memory) Clear(ctx context.Context) error {
	p := m.Recorder.Begin(Op{Kind: Clear, Key: m.Key, Fence: fence(ctx)})
	err := m.Memory.Clear(ctx)
	p.answered(ctx, err)
	return err
}

// Load returns the names of all entries. One that is torn has a name that nobody has saved.
func (m Memory) Load(ctx context.Context) ([]string, error) {
	p := m.Recorder.Begin(Op{Kind: Load, Key: m.Key, Fence: fence(ctx)})
	messages, err := m.Memory.Load(ctx, "")
	if err != nil {
		p.answered(ctx, err)
		return nil, err
	}
	entries := pairs(messages)
	p.End(func(o *Op) { o.Outcome, o.Fence, o.Seen = OK, fence(ctx), entries })
	return entries, nil
}

// pairs makes entries of messages.
func pairs(messages []string) []string {
	entries := make([]string, 0, len(messages)/2)
	for i := 0; i < len(messages); i++ {
		entry := messages[i]
		if i+1 < len(messages) && messages[i+1] == answer+entry {
			i++
		} else {
			entry = fmt.Sprintf("torn: %q alone", entry)
		}
		entries = append(entries, entry)
	}
	return entries
}

// fence is the token that a call runs under, which a store may raise meanwhile.
func fence(ctx context.Context) int64 {
	if lease, ok := lockedmemory.Lease(ctx); ok {
		return lease.Fence()
	}
	return 0
}

// answered says what an error tells about a call. Whatever is not sure not to have happened is unknown.
func (p *Pending) answered(ctx context.Context, err error) {
	token := fence(ctx)
	outcome, mark := OK, int64(0)
	var stale *sessionstore.StaleError
	switch {
	case err == nil:
	case errors.As(err, &stale):
		// An outer error may add why; nothing was written in any case. Outside of a turn, nobody knows which token was refused.
		if outcome, mark = Stale, stale.Mark; token == 0 {
			outcome = Nothing
		} else {
			token = stale.Fence
		}
	case errors.Is(err, sessionstore.ErrTurnConflict):
		outcome = Conflict
	case errors.Is(err, distlock.ErrNotAcquired), errors.Is(err, distlock.ErrNotHeld) && !errors.Is(err, distlock.ErrClosed):
		outcome = Nothing
	default:
		return
	}
	p.End(func(o *Op) { o.Outcome, o.Fence, o.Mark = outcome, token, mark })
}
