package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// errPaused ends a turn whose process was stopped and has written past all checks.
var errPaused = errors.New("the process was stopped")

// strays is the lowest number of a turn that was written past all checks.
const strays = 1 << 60

// sessionWork does something with a session, and repeats it if its outcome is not known.
func (h *hand) sessionWork() {
	e := h.epoch()
	if now() < h.config.Start+int64(e)*int64(h.config.Rotate)+int64(recordedFor) {
		if h.does("draft") && (h.rng.IntN(4) == 0 || !h.does("session") || h.config.Broken == stepwise) {
			h.draftWork(draftOf(e))
			return
		}
	}
	if !h.does("session") {
		h.rest(10 * time.Millisecond)
		return
	}
	t := &task{hand: h, kind: aTurn, session: talkOf(e, h.rng.IntN(talks)), turn: int(h.next()), named: h.rng.IntN(10) > 0}
	switch n := h.rng.IntN(18); {
	case n < 5:
		t.session = noteOf(e, h.rng.IntN(notes))
		t.kind = []kind{aNote, aNote, aTurnClear, aSave, aSave, aSave, aSave, aClear}[h.rng.IntN(8)]
	case n < 7:
		// A message that is handed out twice: others have the same number in these 50 ms.
		t.turn, t.named = int((now()-h.config.Start)/int64(50*time.Millisecond)), true
	}
	repeat := 0
	for try := 0; ; try++ {
		a := t.do()
		h.tell(&said{What: sayAttempt, Attempt: a})
		switch {
		case h.ctx.Err() != nil || !t.named || h.epoch() > e+1 || try > 8:
			return
		case a.acknowledged():
			if repeat++; repeat > 1 || h.rng.IntN(20) > 0 || t.kind == aNote {
				return
			}
		case a.End == wrong || t.kind != aTurn && t.kind != aSave:
			return
		}
		h.rest(between(h.rng, 0, 20*time.Millisecond))
	}
}

func (h *hand) next() int64 { return int64(h.config.Run)<<32 | h.leases.Add(1)&(1<<32-1) }

type task struct {
	*hand
	kind    kind
	session string
	turn    int
	named   bool   // it has an ID, and may be repeated
	outer   memory // the decorator, or the store itself: past all checks
	begun   int64  // of the attempt
	aimed   *aimed // nil: no strike is aimed at this
}

func (t *task) do() *attempt {
	t.outer, t.aimed, t.begun = t.memory, nil, now()
	a := &attempt{Run: t.config.Run, Session: t.session, Kind: t.kind, Turn: t.turn, Begun: t.begun}
	a.Write = a.own()
	ctx, cancel := t.limited()
	defer cancel()
	ctx = lockedmemory.WithSession(ctx, t.session)
	var err error
	switch t.kind {
	case aSave, aClear:
		struck := t.announce(aroundSave)
		if t.kind == aClear {
			err = t.clear(ctx, a)
		} else {
			a.Write = "note"
			question, answer := exchange(t.turn, a.Write, 0, 0)
			err = t.save(ctx, a, question, answer)
		}
		if struck {
			t.struck()
		}
	case aTurn, aNote, aTurnClear:
		if t.config.Broken == noTurn {
			err = t.apart(ctx, a)
			break
		}
		past := func() {} // writes as this turn did
		err = t.memory.Turn(ctx, func(ctx context.Context) error {
			lease, ok := lockedmemory.Lease(ctx)
			if !ok {
				return errors.New("a turn without a lease")
			}
			past = func() { _ = t.past(ctx, lease, a) }
			var failed error
			inside := func(*distlock.Lease) { failed = t.inside(ctx, lease, a) }
			if t.section(lease, a.Begun, inside) == turnedAway {
				inside(lease) // also where it is too late: the store is to refuse it
			}
			return failed
		})
		if err == nil && t.reach(beforeAck) {
			past()
		}
	}
	t.conclude(a, err)
	return a
}

func (t *task) inside(ctx context.Context, lease *distlock.Lease, a *attempt) error {
	start := now()
	a.Mine = lease.Fence()
	if t.reach(beforeLoad) {
		return t.past(ctx, lease, a)
	}
	if t.rng.IntN(30) == 0 {
		t.think(lease)
		if t.paused(start) {
			return t.past(ctx, lease, a)
		}
	}
	a.Asked = now()
	history, err := t.outer.Load(ctx, "")
	if err != nil {
		if t.paused(start) {
			return t.past(ctx, lease, a)
		}
		return err
	}
	a.Mine, a.Loaded, a.Seen = lease.Fence(), now(), len(history) // the Load may have raised the token
	if t.reach(afterLoad) {
		return t.past(ctx, lease, a)
	}
	if t.kind == aTurn && t.rng.IntN(2) == 0 && a.find(history, a.Asked) {
		return nil
	}
	t.think(lease)
	if t.rng.IntN(10) == 0 {
		t.rest(between(t.rng, 0, 10*time.Millisecond))
	}
	if t.reach(inModel) || t.paused(start) {
		return t.past(ctx, lease, a)
	}
	struck := t.announce(aroundSave)
	err = t.write(ctx, a)
	if struck && t.struck() || err == nil && t.reach(afterSave) || t.paused(start) {
		_ = t.past(ctx, lease, a)
	}
	if errors.Is(err, sessionstore.ErrIDConflict) && t.kind == aTurn {
		return t.answered(ctx, a, err)
	}
	return err
}

func (t *task) write(ctx context.Context, a *attempt) error {
	if t.kind == aTurnClear {
		return t.clear(ctx, a)
	}
	question, answer := exchange(t.turn, a.own(), a.Mine, a.Seen)
	return t.save(ctx, a, question, answer)
}

// paused reports whether the task goes on past all checks after a stop, as most do.
func (t *task) paused(since int64) bool {
	return t.aimed == nil && now()-since > int64(t.config.TTL) && t.stopped(since) && (t.rng.IntN(4) > 0 || t.config.Broken == noFence)
}

// save saves, once more in place if it is not known whether it has.
func (t *task) save(ctx context.Context, a *attempt, question, answer message) error {
	saves := func(ctx context.Context) error { return t.outer.Save(ctx, question, answer) }
	if t.named {
		id := fmt.Sprint(t.turn)
		saves = func(ctx context.Context) error { return t.outer.SaveOnce(ctx, id, question, answer) }
	}
	a.Sent = now()
	if t.config.Broken == lostSave && t.rng.IntN(10) == 0 {
		a.Done, a.End = now(), saved
		return nil
	}
	first, cancel := ctx, func() {}
	if t.named && t.rng.IntN(30) == 0 { // so little time that it may be stored or not
		first, cancel = context.WithTimeout(ctx, between(t.rng, 0, 2*time.Millisecond))
	}
	err := saves(first)
	cancel()
	if err != nil && t.named && ctx.Err() == nil && (errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrOutcomeUnknown) || first.Err() != nil) {
		err = saves(ctx)
	}
	if t.config.Broken == doubledSave && t.rng.IntN(10) == 0 {
		_ = t.outer.SaveOnce(ctx, fmt.Sprint(t.turn, "again"), question, answer)
	}
	if a.Done = now(); err == nil {
		a.End, a.Fence = saved, a.Mine
	}
	return err
}

func (t *task) clear(ctx context.Context, a *attempt) error {
	a.Sent = now()
	announced := *a
	announced.End = unknown
	t.tell(&said{What: sayAttempt, Attempt: &announced})
	var err error
	if t.config.Broken != noClear {
		err = t.outer.Clear(ctx)
	}
	if a.Done = now(); err == nil {
		a.End = saved
	}
	return err
}

func (t *task) answered(ctx context.Context, a *attempt, conflict error) error {
	asked := now()
	history, err := t.outer.Load(ctx, "")
	if err != nil {
		return err
	}
	if !a.find(history, asked) {
		return fmt.Errorf("%w, and there is no such turn", conflict)
	}
	return nil
}

func (a *attempt) find(history []message, asked int64) bool {
	for _, m := range history {
		if m.Turn == a.Turn && m.Role == conversation.Answer {
			a.Write, a.Fence, a.Sent, a.Done, a.End = m.Write, m.Fence, asked, now(), found
			return true
		}
	}
	return false
}

// past writes past all checks, as a process does that was stopped just before it wrote.
func (t *task) past(ctx context.Context, lease *distlock.Lease, a *attempt) error {
	ctx = context.WithoutCancel(ctx)
	if t.aimed != nil && t.aimed.Then == unasked && a.Sent == 0 {
		return t.unasked(ctx, a)
	}
	b := &attempt{
		Run: a.Run, Session: a.Session, Kind: aStrayWrite, Turn: strays + int(t.next()), Mine: lease.Fence(), Begun: now(), Seen: a.Seen,
	}
	b.Write = b.own()
	question, answer := exchange(b.Turn, b.Write, b.Mine, a.Seen)
	b.Sent = now()
	err := t.store.Save(ctx, question, answer)
	b.Done, b.Ended = now(), now()
	switch {
	case err == nil:
		b.End = saved
	case errors.Is(err, distlock.ErrLost):
		b.End, b.Error = refused, err.Error()
	default:
		b.End, b.Error = unknown, err.Error()
	}
	t.tell(&said{What: sayAttempt, Attempt: b})
	return errPaused
}

// unasked does what the turn was about to do, by the store itself.
func (t *task) unasked(ctx context.Context, a *attempt) error {
	t.outer, a.Past = t.store, true
	if a.Loaded == 0 { // a refused Load must not be all that keeps it from writing
		asked := now()
		if history, err := t.store.Load(ctx, ""); err == nil {
			a.Asked, a.Loaded, a.Seen = asked, now(), len(history)
		}
	}
	err := t.write(ctx, a)
	if errors.Is(err, sessionstore.ErrIDConflict) { // another worker has answered the message
		return errPaused
	}
	return err
}

func (t *task) conclude(a *attempt, err error) {
	a.Ended = now()
	t.ended(err, a.Loaded != 0 || err == nil)
	if a.acknowledged() {
		return
	}
	var stale *sessionstore.StaleError
	if err != nil {
		a.Error = err.Error()
	}
	switch {
	case a.Sent == 0, errors.Is(err, errPaused):
		a.End = held
	case errors.As(err, &stale):
		a.End = refused
	case errors.Is(err, sessionstore.ErrIDConflict):
		a.End = wrong
		// A server may have lost the turn after it stopped this one.
		t.tell(&said{
			What: sayWrong, Key: a.Session, Began: a.Sent, Got: a.Ended, Text: fmt.Sprintf("%s, turn %d: %v", a.Session, a.Turn, err),
		})
	default:
		a.End = unknown
	}
}
