package belugamemory

import (
	"context"
	"fmt"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// WrapSessions makes a SessionService for a Runner whose Run is locked with the same locker, see [LockRun]. An Update replaces the whole
// session, so one that comes late, from a run that was cancelled or has lost its lease, would take back what others have written since:
//
//   - Update under a lease of its session that is held, that of a run above all, is done, as one step of the lease. It is taken for the end
//     of its run, because it is the last thing that a Runner does.
//   - Update under a lease that was lost or released is refused with distlock.ErrLost or distlock.ErrNotHeld, and so is one without any
//     lease, with distlock.ErrNotHeld. A Runner logs such an error, and goes on.
//   - Delete takes the session's lock if it is not under its lease.
//   - Create and Get take no lock. A session that is made in a run belongs to that until the run has ended: nobody else knows its ID.
//
// Options are [WithKey]. A nil service or locker is refused with distlock.ErrInvalidOption. Errors of the service come back as they are.
func WrapSessions(inner runtime.SessionService, locker *distlock.Locker, opts ...Option) (runtime.SessionService, error) {
	s, err := settingsOf(opts, forSessions)
	switch {
	case err != nil:
	case inner == nil:
		err = fmt.Errorf("%w: the SessionService is nil: give the one that the Runner is to use", distlock.ErrInvalidOption)
	case locker == nil:
		err = fmt.Errorf("%w: the Locker is nil: give the one that LockRun is given", distlock.ErrInvalidOption)
	}
	if err != nil {
		return nil, coded("belugamemory.wrapsessions", err)
	}
	return &sessions{inner, locker, s.key}, nil
}

type sessions struct {
	inner  runtime.SessionService
	locker *distlock.Locker
	key    lockedmemory.KeyFunc
}

func (s *sessions) Create(ctx context.Context, agentID string) (*runtime.Session, error) {
	session, err := s.inner.Create(ctx, agentID)
	if err == nil && session != nil {
		if r := s.run(ctx); r != nil {
			r.creates(session.ID)
		}
	}
	return session, err
}

func (s *sessions) Get(ctx context.Context, sessionID string) (*runtime.Session, error) {
	return s.inner.Get(ctx, sessionID)
}

func (s *sessions) Update(ctx context.Context, session *runtime.Session) error {
	if session == nil {
		return s.inner.Update(ctx, nil) // it knows what to say
	}
	lease, err := s.lease(ctx, session.ID)
	if err != nil {
		return coded("belugamemory.update", err)
	}
	if r := s.run(ctx); r != nil && r.lease == lease {
		defer r.end()
	}
	joined, leave := lease.Join(ctx)
	defer leave()
	return under("belugamemory.update", func(fn step) error {
		// ⚑ The Update of a run that was cancelled comes with a context that has ended. What that means for it is for the service to say: a
		// wait with such a context, even for a step that is free, would leave it to chance.
		return lease.Guard(context.WithoutCancel(joined), func(ctx context.Context) error { return fn(valued{joined, ctx}) })
	}, func(ctx context.Context) error { return s.inner.Update(ctx, session) })
}

// valued is a context with the values of another one.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any { return v.values.Value(key) }

func (s *sessions) Delete(ctx context.Context, sessionID string) error {
	key, err := s.keyOf(ctx, sessionID)
	if err != nil {
		return coded("belugamemory.delete", err)
	}
	remove := func(ctx context.Context) error { return s.inner.Delete(ctx, sessionID) }
	if lease, err := s.lease(ctx, sessionID); err == nil {
		return under("belugamemory.delete", func(fn step) error { return lease.Guard(ctx, fn) }, remove)
	}
	return under("belugamemory.delete", func(fn step) error { return s.locker.Do(ctx, key, fn) }, remove)
}

// lease finds the lease that a write of the session is to be done under.
func (s *sessions) lease(ctx context.Context, sessionID string) (*distlock.Lease, error) {
	key, err := s.keyOf(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if lease, ok := s.locker.FromContext(ctx, key); ok {
		return lease, nil
	}
	if r := s.run(ctx); r != nil && r.hasCreated(sessionID) {
		return r.lease, nil
	}
	return nil, fmt.Errorf("%w: it replaces the whole session, and the context has no lease for that: run the Runner's Run "+
		"through LockRun, with the same Locker", distlock.ErrNotHeld)
}

func (s *sessions) keyOf(ctx context.Context, sessionID string) (string, error) {
	return keyFor(core.WithSessionID(ctx, sessionID), s.key)
}

func (s *sessions) run(ctx context.Context) *lockedRun {
	if r := runOf(ctx); r != nil && r.locker == s.locker {
		return r
	}
	return nil
}
