package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/integrity"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// errStruck ends a turn that was stopped and has written past all checks.
var errStruck = errors.New("the process was stopped")

// do is a task, from the message to its acknowledgement.
func (i *instance) do(t *task) report {
	ctx, cancel := context.WithTimeout(withSession(context.Background(), t.Session), t.Limit)
	defer cancel()
	w := &work{instance: i, task: t, report: report{Task: t.ID, Word: done}}
	w.outside(ctx)
	return w.report
}

// work is what one task does.
type work struct {
	*instance
	task *task
	report
	ctx     context.Context // of the turn
	resumed int64           // when it was continued, after it was stopped for longer than its lease lasts; 0: it was not
}

// outside is what the caller of the memory does.
func (w *work) outside(ctx context.Context) {
	var err error
	switch w.task.Kind {
	case aSave:
		start := time.Now()
		strikes := w.announce(aroundSave)
		err = w.save(ctx, w.memory, 0, 0)
		if strikes {
			w.struck(start)
		}
	case aClear:
		start := time.Now()
		strikes := w.announce(aroundSave)
		err = w.clear(ctx, w.memory)
		if strikes {
			w.struck(start)
		}
	default:
		err = w.turn(ctx)
	}
	switch {
	case err != nil:
		w.failed(err)
	case w.reach(beforeAck):
		w.past(w.ctx, 0)
	}
}

// turn is one turn of the conversation, under one lease.
func (w *work) turn(ctx context.Context) error {
	if !w.turns {
		return w.inside(ctx)
	}
	return w.memory.Turn(ctx, w.inside)
}

func (w *work) inside(ctx context.Context) error {
	w.ctx = ctx
	began, token := now(), int64(0)
	if lease, ok := lockedmemory.Lease(ctx); ok {
		token = lease.Fence()
	}
	if w.reach(beforeLoad) {
		w.past(ctx, 0)
		return errStruck
	}
	asked := now()
	history, err := w.memory.Load(ctx, "")
	if err != nil {
		return err
	}
	w.tell(report{Task: w.task.ID, Word: loaded, Fence: token, Began: began, Asked: asked, Count: len(history)})
	if w.reach(afterLoad) {
		w.past(ctx, len(history))
		return errStruck
	}
	if !w.task.Blind && w.find(history, asked) {
		w.End = found
		return nil
	}
	time.Sleep(w.task.Model / 2)
	if w.reach(inModel) {
		w.past(ctx, len(history))
		return errStruck
	}
	time.Sleep(w.task.Model / 2)
	start := time.Now()
	strikes := w.announce(aroundSave)
	err = w.write(ctx, len(history), token)
	if strikes && w.struck(start) || err == nil && w.reach(afterSave) {
		w.past(ctx, len(history))
	}
	return err
}

// reach says that the task has come to the moment of its strike, and waits for that. It reports whether the task is to go on
// past all checks.
func (w *work) reach(m moment) (past bool) {
	start := time.Now()
	return w.announce(m) && w.struck(start)
}

// announce says that the task has come to the moment of its strike, if that is now.
func (w *work) announce(m moment) bool {
	s := w.task.Strike
	if s == nil || s.At != m {
		return false
	}
	w.tell(report{Task: w.task.ID, Word: reached})
	return true
}

// patience is how long an instance waits for a strike, which comes at once.
const patience = 20 * time.Second

// struck waits until this process has been stopped and continued, at some time since start, and reports whether the task is to go on
// past all checks. It returns at once when that is so: nothing has looked at a lease yet. If the process is to be killed, it does not return.
func (w *work) struck(start time.Time) (past bool) {
	for last := start; last.Sub(start) < patience; time.Sleep(time.Millisecond) {
		at := time.Now()
		if at.Sub(last) > w.ttl {
			w.resumed = at.UnixNano()
			return w.task.Strike.Pause && w.task.Strike.Then != checked
		}
		last = at
	}
	return false
}

// write is what the turn is for.
func (w *work) write(ctx context.Context, seen int, token int64) error {
	if w.task.Kind == aTurnClear {
		return w.clear(ctx, w.memory)
	}
	return w.save(ctx, w.memory, seen, token)
}

func (w *work) clear(ctx context.Context, m memory) error {
	w.Wrote = now()
	w.Asked = w.Wrote
	err := m.Clear(context.WithValue(ctx, noteKey{}, &w.Fence))
	if err == nil {
		w.End = saved
	}
	return err
}

func (w *work) save(ctx context.Context, m memory, seen int, token int64) error {
	question, answer := w.exchange(seen, token)
	if w.task.Name != "" {
		ctx = lockedmemory.WithTurnID(ctx, w.task.Name)
	}
	w.Wrote = now()
	w.Asked = w.Wrote
	err := w.first(ctx, m, question, answer)
	if errors.Is(err, sessionstore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		if w.task.Name == "" || ctx.Err() != nil {
			return err
		}
		// Stored or not: with its turn ID it may be repeated.
		w.Repeated++
		w.Asked = now()
		err = m.Save(ctx, question, answer)
	}
	switch {
	case err == nil:
		w.End, w.Write, w.Fence = saved, question.Write, token
	case errors.Is(err, sessionstore.ErrTurnConflict) && w.task.Kind == aTurn:
		return w.answered(ctx, err)
	case errors.Is(err, sessionstore.ErrTurnConflict): // with notes, nobody looks which one it was
		w.End = conflicted
		return nil
	}
	return err
}

// first is the first attempt of a Save.
func (w *work) first(ctx context.Context, m memory, question, answer message) error {
	if w.task.Hasty {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(2*time.Millisecond))
		defer cancel()
	}
	return m.Save(ctx, question, answer)
}

// answered looks for what an earlier attempt has stored, which the caller is to be given. Nothing of the sort is a conflict without a turn.
func (w *work) answered(ctx context.Context, conflict error) error {
	asked := now()
	history, err := w.memory.Load(ctx, "")
	switch {
	case err != nil:
		return err
	case !w.find(history, asked):
		return fmt.Errorf("%w, and there is no such turn", conflict)
	}
	w.End = conflicted
	return nil
}

func (w *work) find(history []message, asked int64) bool {
	for _, m := range history {
		if m.Turn == w.task.Turn && m.Role == integrity.Answer {
			w.Write, w.Fence, w.Asked = m.Write, m.Fence, asked
			return true
		}
	}
	return false
}

// exchange is what a task adds. A note does not depend on who writes it, or when.
func (w *work) exchange(seen int, token int64) (question, answer message) {
	question = message{Turn: w.task.Turn, Role: integrity.Question, Write: fmt.Sprint(w.task.ID), Fence: token}
	if w.task.Kind != aTurn {
		question.Write = "note"
	}
	answer = question
	answer.Role, answer.Seen = integrity.Answer, seen
	return question, answer
}

// stray is the turn number of what a stopped process has written besides.
func stray(task int) int { return 1<<40 + task }

// past writes past all checks, as a process does that was stopped just before it wrote.
func (w *work) past(ctx context.Context, seen int) {
	ctx = context.WithoutCancel(ctx)
	r := report{Task: w.task.ID, Word: written, Began: now()}
	if lease, ok := lockedmemory.Lease(ctx); ok {
		r.Fence = lease.Fence()
	}
	wrote := w.Wrote
	err := w.pastAll(ctx, seen, r.Fence)
	switch {
	case err == nil:
		r.End = saved
	case errors.Is(err, distlock.ErrLost), errors.Is(err, sessionstore.ErrTurnConflict):
		r.End = refused
		w.Wrote = wrote
	default:
		r.End = unknown
	}
	if err != nil {
		r.Error = err.Error()
	}
	if r.End != refused {
		w.resumed = 0 // it is not known any more that nothing was written
	}
	w.tell(r)
}

func (w *work) pastAll(ctx context.Context, seen int, token int64) error {
	if w.task.Strike.At == beforeLoad {
		// A refused Load must not be all that keeps it from writing.
		if history, err := w.store.Load(ctx, ""); err == nil {
			seen = len(history)
		}
	}
	switch {
	case w.task.Strike.Then == nameless || w.Wrote != 0:
		question, answer := w.exchange(seen, token)
		question.Turn, question.Write = stray(w.task.ID), "stray"
		answer.Turn, answer.Write = question.Turn, question.Write
		return w.store.Save(ctx, question, answer)
	case w.task.Kind == aTurnClear:
		w.Wrote = now()
		return w.store.Clear(ctx)
	}
	w.Wrote = now()
	question, answer := w.exchange(seen, token)
	if w.task.Name != "" {
		ctx = lockedmemory.WithTurnID(ctx, w.task.Name)
	}
	return w.store.Save(ctx, question, answer)
}

// failed says how a task has failed.
func (w *work) failed(err error) {
	w.Error = err.Error()
	var stale *sessionstore.StaleError
	switch {
	case errors.Is(err, distlock.ErrLost) && (w.Wrote == 0 || w.resumed != 0 && w.Wrote > w.resumed):
		w.End = held
	case w.Wrote == 0, errors.Is(err, distlock.ErrNotAcquired):
		w.End = undone
	case errors.As(err, &stale):
		w.End = refused
	default:
		w.End = unknown
	}
	if !expected(err) {
		w.End = wrong
	}
}

// expected are the errors that a caller must reckon with.
func expected(err error) bool {
	for _, e := range []error{
		errStruck, context.Canceled, context.DeadlineExceeded, distlock.ErrUnavailable, sessionstore.ErrUnavailable, distlock.ErrLost, distlock.ErrNotAcquired,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
