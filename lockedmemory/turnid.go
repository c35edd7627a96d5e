package lockedmemory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/belugalock/belugalock/distlock"
)

// ErrTurnID: a turn ID is empty or longer than 512 bytes, or a Save or Turn has another ID than the turn
// around it, or the ID does not fit an Answer, see [LockedMemory.Answer]. Nothing was written, and the
// function of a Turn or Answer was not run.
var ErrTurnID = errors.New("lockedmemory: invalid turn ID")

// MaxTurnID is the longest turn ID, in bytes.
const MaxTurnID = 512

type turnIDKey struct{}

// WithTurnID returns a context with an ID for the next [LockedMemory.Turn]: that of the answered
// message. The Saves of the turn are then (id, 1), (id, 2) and so on. A store that knows of IDs, see
// [TurnID], stores each number once. If the turn is repeated under its ID, also in another process, its
// Saves go on after the highest number stored.
//
// The ID belongs to that turn alone. A Turn of another session inside it needs its own ID. A Save or
// Turn of the same session inside it, with another ID, fails with [ErrTurnID]. A Save outside a turn, or
// inside a turn without an ID, is (id, 1) of its own.
//
// Use one store in a turn with an ID: its numbers are counted for all memories of the session. The ID has
// 1 to 512 bytes; keep it for every retry. Two sessions may have the same ID. Without an ID, or in a
// memory that does not know of IDs, every Save is a new exchange.
func WithTurnID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, turnIDKey{}, id)
}

// NamedTurn is a turn with an ID, as an inner store sees it. It numbers the exchanges of the turn from 1.
// A number is used up when its exchange is stored: the repetition of a failed Save has the same number.
// It is safe for concurrent use.
type NamedTurn struct {
	ID     string
	sealed bool // in the function of an Answer, which stores nothing under the ID

	mu     sync.Mutex
	stored int
	known  bool
}

// Next returns the number of the next exchange. If known is false, the turn may be a repetition: the
// store reads how many exchanges it has under the ID, and calls Resume.
func (t *NamedTurn) Next() (n int, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stored + 1, t.known
}

// Resume sets the highest number that is stored under the ID; 0: none. It has no effect after another
// Resume or Stored.
func (t *NamedTurn) Resume(stored int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		t.stored, t.known = stored, true
	}
}

// Stored notes that exchange n is stored. The next number is n + 1.
func (t *NamedTurn) Stored(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stored, t.known = max(t.stored, n), true
}

// TurnID returns the named turn of a context: in an inner store, the turn of the call; with the context
// of a caller, the turn to which a Save would belong. False: the turn has no ID.
func TurnID(ctx context.Context) (*NamedTurn, bool) {
	if call, _ := ctx.Value(callKey{}).(call); call.turn != nil {
		// ⚑ A Save that goes past the memory, to the store, must not be taken for the answer.
		if call.turn.sealed {
			return nil, false
		}
		return call.turn, true
	}
	if id, _ := ctx.Value(turnIDKey{}).(string); id != "" {
		return &NamedTurn{ID: id, known: true}, true
	}
	return nil, false
}

// turnKey finds the turn of a session that a context belongs to; nil: the turn has no ID.
type turnKey session

// named returns the named turn that an operation belongs to, or nil.
func (m *LockedMemory[M, D]) named(ctx context.Context, op *distlock.Operation) (*NamedTurn, error) {
	around, _ := ctx.Value(turnKey{m.locker, op.Key}).(*NamedTurn)
	id, given := ctx.Value(turnIDKey{}).(string)
	switch {
	case op.Name == OpClear, op.Name == OpDelete, op.Name == OpReplace: // they store no exchange of a turn
		return nil, nil
	case around != nil && around.sealed && op.Name != OpTurn:
		return nil, fmt.Errorf("%s: %w: the function of an Answer stores nothing itself; nothing was written: "+
			"return the messages, or use a Turn", op.Name, ErrTurnID)
	case op.Name == OpAnswer && around != nil:
		return nil, fmt.Errorf("%s: %w: the turn around it has an ID, too; nothing was written: "+
			"give the ID to the Answer alone", op.Name, ErrTurnID)
	case !given:
		return around, nil
	case id == "":
		return nil, fmt.Errorf("%s: %w: it is empty; nothing was written: "+
			"use the ID of the message that is answered, or leave WithTurnID out", op.Name, ErrTurnID)
	case len(id) > MaxTurnID:
		return nil, fmt.Errorf("%s: %w: it has %d bytes, at most %d are allowed; nothing was written: "+
			"use a shorter one, such as a hash of this one", op.Name, ErrTurnID, len(id), MaxTurnID)
	case around == nil:
		return &NamedTurn{ID: id, known: !isTurn(op)}, nil
	case around.ID != id:
		return nil, fmt.Errorf("%s: %w: the turn around it has another one; nothing was written: "+
			"give the ID to the Turn alone", op.Name, ErrTurnID)
	default:
		return around, nil
	}
}

// within returns the context of a turn's function. The turn has taken the ID of ctx.
func (m *LockedMemory[M, D]) within(ctx context.Context, key string, turn *NamedTurn) context.Context {
	if ctx.Value(turnIDKey{}) != nil {
		ctx = context.WithValue(ctx, turnIDKey{}, nil)
	}
	lease, _ := m.locker.FromContext(ctx, key)
	return call{lease: lease, turn: turn}.of(context.WithValue(ctx, turnKey{m.locker, key}, turn))
}

type callKey struct{}

// call is the lease and the named turn of a call of the inner memory.
type call struct {
	lease *distlock.Lease // nil also hides the lease of another session's turn around the call
	turn  *NamedTurn
	last  any // the inner memory, if nothing uses the lease after the call
}

// of returns the context of the call.
func (c call) of(ctx context.Context) context.Context { return context.WithValue(ctx, callKey{}, c) }
