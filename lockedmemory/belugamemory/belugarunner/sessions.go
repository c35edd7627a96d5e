package belugarunner

import (
	"cmp"
	"context"
	"fmt"

	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

// WrapSessions wraps the SessionService of a Runner whose Run is locked with the same Locker, see
// [LockRun]. Get outside of the session's run, Create outside of a run, and Update without a lease
// of the session fail with distlock.ErrLost or distlock.ErrNotHeld. So a Runner without LockRun
// fails before it asks its agent, and no late Update takes back later turns.
//
// Update ends the lease of its run, whatever the result is. Delete takes the session's lock if the
// context has no lease of the session. A session created in a run belongs to that run until its
// end. Outside of runs, use the inner service, and Locker.Do with the [belugamemory.SessionKey] to change a
// session.
//
// Options are [WithKey]. A nil service or Locker fails with distlock.ErrInvalidOption. Errors of
// the service are returned unchanged.
func WrapSessions(
	inner runtime.SessionService, locker *distlock.Locker, opts ...Option,
) (runtime.SessionService, error) {
	s, err := settingsOf(locker, opts, forSessions)
	if err == nil && inner == nil {
		err = codes.Invalid("the SessionService is nil: give the one that the Runner is to use")
	}
	if err != nil {
		return nil, codes.Of("belugarunner.wrapsessions", err)
	}
	return &sessions{inner, s}, nil
}

type sessions struct {
	inner runtime.SessionService
	settings
}

func (s *sessions) Create(ctx context.Context, agentID string) (*runtime.Session, error) {
	return s.read(ctx, "belugarunner.create", nil, nil, func(r *lockedRun) (session *runtime.Session, err error) {
		if session, err = s.inner.Create(ctx, agentID); err == nil && session != nil {
			r.created.Store(session.ID, true)
		}
		return session, err
	})
}

func (s *sessions) Get(ctx context.Context, sessionID string) (*runtime.Session, error) {
	lease, err := s.lease(ctx, sessionID)
	return s.read(ctx, "belugarunner.get", lease, err, func(*lockedRun) (session *runtime.Session, err error) {
		get := s.inner.Get
		if service, ok := s.inner.(*SessionService); ok && s.runs != nil { // of a Runner of New
			get = func(ctx context.Context, id string) (*runtime.Session, error) { return service.get(ctx, id, s.tokens) }
		}
		if session, err = get(ctx, sessionID); err == nil && session != nil && session.ID != sessionID {
			err = codes.Of("belugarunner.get", codes.Invalid("the service returned a session with another ID: "+
				"give the run the ID of the session"))
		}
		if err == nil && session != nil && s.agentID != "" && session.AgentID != "" && session.AgentID != s.agentID {
			err = codes.Of("belugarunner.get", codes.Invalid("the session belongs to the agent %q, and this is the Runner of %q: "+
				"use another session ID, or give the Runner the old ID with WithAgentID", session.AgentID, s.agentID))
		}
		return session, err
	})
}

// read calls get for the run with this lease, or for any run if lease is nil. If why is not nil,
// read fails with why. A failed get ends the worker.
func (s *sessions) read(ctx context.Context, op string, lease *distlock.Lease, why error,
	get func(*lockedRun) (*runtime.Session, error)) (*runtime.Session, error) {
	r := runOf(ctx)
	if why == nil && (r == nil || fencing.Locker(r.lease) != s.locker || lease != nil && lease != r.lease) {
		why = errNoLease
	} else if why == nil {
		why = r.lease.Err()
	}
	if why != nil {
		return nil, codes.Of(op, why)
	}
	first := r.work.read()
	session, err := get(r)
	r.hidden.Store(nil)
	if err != nil {
		r.hidden.Store(&err)
	} else if session != nil {
		r.given.CompareAndSwap(nil, &givenSession{session, session.ID})
	}
	if err != nil && first {
		r.workEnded(ctx, 0, false)
	}
	return session, err
}

func (s *sessions) Update(ctx context.Context, session *runtime.Session) (err error) {
	if session == nil {
		return s.inner.Update(ctx, nil) // returns its own error
	}
	lease, err := s.lease(ctx, session.ID)
	r := runOf(ctx)
	changed := r.keepsID(session)
	if err = cmp.Or(changed, err); r != nil && (changed != nil || lease == r.lease || lease == nil && session.ID == r.session) {
		defer func() {
			if err != nil {
				r.fails(err)
			} else {
				r.stored.Store(true)
			}
			r.end(context.WithoutCancel(ctx)) // ⚑ as in workEnded
		}()
		err = cmp.Or(err, r.past.store(session))
		if _, ok := s.inner.(*SessionService); ok && r.owns { // whose Update is one write
			ctx = lastwrite.Announce(ctx)
		}
	}
	if err != nil {
		return codes.Of("belugarunner.update", err)
	}
	return codes.Under("belugarunner.update", func(fn codes.Step) error {
		// ⚑ The context of a cancelled run's Update has ended. The service decides about this
		// Update. Guard with the ended context would sometimes refuse first.
		return lease.Guard(context.WithoutCancel(ctx), func(step context.Context) error { return fn(valued{ctx, step}) })
	}, func(ctx context.Context) error { return s.inner.Update(ctx, session) })
}

func (s *sessions) Delete(ctx context.Context, sessionID string) error {
	key, err := keyFor(ctx, sessionID, s.key)
	if err != nil {
		return codes.Of("belugarunner.delete", err)
	}
	lock := func(fn codes.Step) error { return s.locker.Do(ctx, key, fn) }
	if lease, err := s.lease(ctx, sessionID); err == nil {
		lock = func(fn codes.Step) error { return lease.Guard(ctx, fn) }
	}
	return codes.Under("belugarunner.delete", lock, func(ctx context.Context) error { return s.inner.Delete(ctx, sessionID) })
}

var errNoLease = fmt.Errorf("%w: the context has no run or lease of the session from this Locker: "+
	"call the Runner's Run through LockRun with the same Locker and WithKey; "+
	"outside of runs use the inner service", distlock.ErrNotHeld)

// lease finds the lease of the session.
func (s *sessions) lease(ctx context.Context, sessionID string) (*distlock.Lease, error) {
	key, err := keyFor(ctx, sessionID, s.key)
	if err != nil {
		return nil, err
	}
	if lease, ok := s.locker.FromContext(ctx, key); ok {
		return lease, nil
	}
	if r := runOf(ctx); r != nil {
		if _, ok := r.created.Load(sessionID); ok {
			return r.lease, nil
		}
	}
	return nil, errNoLease
}
