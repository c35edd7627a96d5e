package belugarunner_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// change updates the session with a new state.
func (p *place) change(ctx context.Context, t *testing.T, service runtime.SessionService) error {
	t.Helper()
	session, err := p.sessions.Get(t.Context(), p.session)
	must(t, err)
	session.AgentID = "changed"
	return service.Update(ctx, session)
}

func (p *place) changed(t *testing.T) bool {
	t.Helper()
	session, err := p.sessions.Get(t.Context(), p.session)
	must(t, err)
	return session.AgentID == "changed"
}

func TestWrapSessions_S1_noLease_updateRefused(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a, b := p.with(t, echo), p.with(t, echo)
		refused := func(ctx context.Context, sentinel error) {
			t.Helper()
			refusedWith(t, p.change(ctx, t, a.sessions), core.ErrInvalidInput, sentinel)
			if p.changed(t) {
				t.Fatal("it was done")
			}
		}
		do := func(locker *distlock.Locker, key string, fn func(ctx context.Context)) {
			t.Helper()
			if err := locker.Do(t.Context(), key, func(ctx context.Context) error { fn(ctx); return nil }); err != nil {
				t.Error(err)
			}
		}
		refused(t.Context(), distlock.ErrNotHeld)
		do(a.locker, "another session", func(ctx context.Context) { refused(ctx, distlock.ErrNotHeld) })
		do(b.locker, p.session, func(ctx context.Context) { refused(ctx, distlock.ErrNotHeld) })
		var left context.Context
		do(a.locker, p.session, func(ctx context.Context) { left = context.WithoutCancel(ctx) })
		refused(left, distlock.ErrNotHeld)
		do(a.locker, p.session, func(ctx context.Context) {
			if err := p.change(ctx, t, a.sessions); err != nil || !p.changed(t) {
				t.Errorf("Update under the lease: %v; done: %t", err, p.changed(t))
			}
		})
	})
}

func TestWrapSessions_N_lostLease_updateRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		a := p.with(t, echo)
		lease, err := a.locker.Acquire(t.Context(), p.session)
		must(t, err)
		ctx := lease.Context()
		p.lose(t)
		<-ctx.Done()
		for _, ctx := range []context.Context{ctx, context.WithoutCancel(ctx)} {
			refusedWith(t, p.change(ctx, t, a.sessions), belugamemory.ErrLockLost, distlock.ErrLost)
			refusedWith(t, a.sessions.Delete(ctx, p.session), belugamemory.ErrLockLost, distlock.ErrLost)
		}
		if p.changed(t) {
			t.Error("it was done")
		}
	})
}

// A Runner without a lease of this Locker fails before it asks its agent.
func TestWrapSessions_S1_getAndCreateNeedTheRun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a, b := p.with(t, nil), p.with(t, nil)
		refused := func(ctx context.Context, session string) {
			t.Helper()
			_, got := a.sessions.Get(ctx, session)
			_, created := a.sessions.Create(ctx, "agent")
			refusedWith(t, got, core.ErrInvalidInput, distlock.ErrNotHeld)
			refusedWith(t, created, core.ErrInvalidInput, distlock.ErrNotHeld)
		}
		refused(t.Context(), p.session)
		a.agent = func(context.Context, string) (string, error) {
			t.Error("the agent is asked")
			return "", nil
		}
		for name, run := range map[string]func(ctx context.Context, sessionID, input string) iter.Seq2[string, error]{
			"no LockRun": a.Run,
			"Do for LockRun": func(ctx context.Context, sessionID, input string) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					must(t, a.locker.Do(ctx, sessionID,
						func(ctx context.Context) error { a.Run(ctx, sessionID, input)(yield); return nil }))
				}
			},
			"another Locker": must2(belugarunner.LockRun(b.locker, a.Run)),
			"another key": must2(belugarunner.LockRun(a.locker, a.Run,
				belugarunner.WithKey(func(context.Context) (string, error) {
					return "another", nil
				}))),
		} {
			for answer, err := range run(t.Context(), p.session, "q") {
				if answer != "" || err == nil {
					t.Errorf("%s: answer %q, error %v", name, answer, err)
				}
				refusedWith(t, err, core.ErrInvalidInput, distlock.ErrNotHeld)
			}
		}
		var ctx context.Context
		a.agent = func(run context.Context, _ string) (string, error) {
			ctx = context.WithoutCancel(run)
			_, err := a.sessions.Get(run, "another")
			refusedWith(t, err, core.ErrInvalidInput, distlock.ErrNotHeld)
			must(t, a.locker.Do(run, "another", func(ctx context.Context) error {
				_, err := a.sessions.Get(ctx, "another")
				refusedWith(t, err, core.ErrInvalidInput, distlock.ErrNotHeld)
				return nil
			}))
			_, err = b.sessions.Create(run, "agent")
			refusedWith(t, err, core.ErrInvalidInput, distlock.ErrNotHeld)
			return "done", nil
		}
		if answer, errs := p.say(t.Context(), a, "q"); answer != "done" || errs != nil {
			t.Errorf("%q, %v", answer, errs)
		}
		refused(ctx, p.session)
	})
}

// alias returns the same session for all IDs.
type alias struct {
	runtime.SessionService
	id string
}

func (a alias) Get(ctx context.Context, _ string) (*runtime.Session, error) {
	return a.SessionService.Get(ctx, a.id)
}

// The lease belongs to the run's ID, so the Update of another ID would be refused after the answer.
func TestWrapSessions_S1_getRefusesAnotherID(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, echo)
		a.sessions = must2(belugarunner.WrapSessions(alias{p.sessions, p.session}, a.locker))
		p.session = "another ID"
		answer, err := p.oneError(t.Context(), a, "q")
		if answer != "" {
			t.Errorf("the client got the answer %q, which is not stored", answer)
		}
		refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
	})
}

// For a missing session a Runner creates a session with another ID. It belongs to the run until the
// end of the run.
func TestWrapSessions_createdSession_joinsTheRun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		p.session = "unknown"
		var made *runtime.Session
		var run context.Context
		a := p.with(t, echo)
		a.after = func(ctx context.Context) {
			run = context.WithoutCancel(ctx)
			var err error
			made, err = a.sessions.Create(ctx, "agent")
			must(t, err)
			must(t, second(a.sessions.Get(ctx, made.ID)))
			must(t, a.sessions.Delete(ctx, made.ID))
		}
		updates := 0
		p.sessions.updated = func() { updates++ }
		if answer, errs := p.say(t.Context(), a, "q"); answer != "answer to q" || errs != nil || updates != 1 ||
			!p.free(t, a) {
			t.Errorf("%q, %v, and %d Updates; the lock is free: %t", answer, errs, updates, p.free(t, a))
		}
		refusedWith(t, a.sessions.Update(run, made), core.ErrInvalidInput, distlock.ErrNotHeld)
	})
}

// A run may not write other sessions without their lease, and such a write does not end the run.
func TestWrapSessions_S1_runOwnsOnlyItsSessions(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		other, err := p.sessions.Create(t.Context(), "agent")
		must(t, err)
		slow := newThinks()
		a := p.with(t, nil)
		a.agent = func(ctx context.Context, input string) (string, error) {
			refusedWith(t, a.sessions.Update(ctx, other), core.ErrInvalidInput, distlock.ErrNotHeld)
			if err := a.locker.Do(ctx, other.ID,
				func(ctx context.Context) error { return a.sessions.Update(ctx, other) }); err != nil {
				t.Error(err)
			}
			return slow.agent(ctx, input)
		}
		p.cancelled(t, a, slow, "q")
		synctest.Wait()
		if p.free(t, a) {
			t.Error("the lock is free while the agent is at work")
		}
		close(slow.goOn)
		a.workers.Wait()
		if got := p.turns(t); got != "q" {
			t.Errorf("the turns %q", got)
		}
	})
}

func TestWrapSessions_S1_deleteWaitsForTheRun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a, b := p.with(t, slow.agent), p.with(t, echo)
		go p.say(t.Context(), a, "q")
		<-slow.begun
		start, deleted := time.Now(), make(chan error, 1)
		go func() { deleted <- b.sessions.Delete(t.Context(), p.session) }()
		synctest.Wait()
		time.Sleep(time.Second)
		close(slow.goOn)
		if err := <-deleted; err != nil || time.Since(start) != time.Second {
			t.Errorf("Delete: %v after %s", err, time.Since(start))
		}
		lease, err := a.locker.Acquire(t.Context(), p.session)
		must(t, err)
		err = b.sessions.Delete(t.Context(), p.session)
		refusedWith(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// broken fails with its own errors.
type broken struct{ err error }

func (b broken) Create(context.Context, string) (*runtime.Session, error) { return nil, b.err }
func (b broken) Get(context.Context, string) (*runtime.Session, error)    { return nil, b.err }
func (b broken) Update(context.Context, *runtime.Session) error           { return b.err }
func (b broken) Delete(context.Context, string) error                     { return b.err }

func TestWrapSessions_serviceErrors_unchanged(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		// An error that looks like a sentinel gets no code either.
		p.sessions.SessionService = broken{errors.Join(errors.New("the disk is full"), distlock.ErrUnavailable)}
		want := p.sessions.SessionService.(broken).err
		a := p.with(t, echo)
		_, got := p.say(t.Context(), a, "q")
		lease, err := a.locker.Acquire(t.Context(), p.session)
		must(t, err)
		ctx := lease.Context()
		for name, err := range map[string]error{
			"Get":           got[0],
			"Update":        a.sessions.Update(ctx, &runtime.Session{ID: p.session}),
			"Update of nil": a.sessions.Update(ctx, nil),
			"Delete":        a.sessions.Delete(ctx, p.session),
			"Delete, alone": a.sessions.Delete(t.Context(), "another session"),
		} {
			if err != want {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
