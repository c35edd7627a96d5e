package adksession

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/retry"
)

const (
	// repeatFor is how long a request is repeated.
	repeatFor = 5 * time.Second
	// ownWait is how long an append without a lease waits for its own. ⚑ The lease of a run that waits for its
	// model has not ended: an append in between would end the run.
	ownWait = time.Second
	// raises bounds the requests with a raised token.
	raises = 5
)

// repeating says after which failures a request is sent again.
type repeating int

const (
	once   repeating = iota // those of a sure refusal
	safely                  // all: the store knows a copy
	reads                   // all: it writes nothing of its caller
)

// leased returns what a lease knows. Steps of the lease alone may use it.
func (s *Service) leased(lease *distlock.Lease) *leased {
	if lease == nil {
		return new(leased)
	}
	return fencing.Attach(lease, s, func() any { return new(leased) }).(*leased)
}

// step runs write as one step under the lease of a session: that of ctx, or one for this call.
func (s *Service) step(ctx context.Context, of id, write func(context.Context, *distlock.Lease) error, opts ...distlock.CallOption) error {
	began, wrote := false, error(nil)
	err := s.locker.Do(ctx, of.key(), func(ctx context.Context) error {
		lease, _ := s.locker.FromContext(ctx, of.key())
		return lease.Guard(ctx, func(ctx context.Context) error {
			began, wrote = true, write(ctx, lease)
			return wrote
		})
	}, opts...)
	if began && wrote == nil { // ⚑ stored is stored, also if the lease was lost since
		err = nil
	}
	return public(err)
}

// ask sends a request with the token of a lease, or without one, and raises a token that the lock gives back to its
// owner.
func (s *Service) ask(ctx context.Context, a *access, lease *distlock.Lease, how repeating, call func() (reply, error)) (r reply, err error) {
	l, lost := s.leased(lease), false
	for range raises {
		if lease != nil {
			a.token = lease.Fence()
		}
		sent, err := retry.Do(ctx, repeatFor, func() (err error) {
			r, err = call()
			return how.again(err)
		})
		lost = how != reads && (lost || sent)
		switch {
		case err != nil:
			return r, requestError(ctx, lost || how != reads && driver.MayHaveEffect(err), err)
		case r.outcome == done:
			l.accepted = true
			return r, nil
		case r.outcome == stale && !l.accepted:
			// The mark may be from before the lock service lost its data.
			if err = fencing.RaiseToken(ctx, lease, r.mark); err == nil {
				continue
			}
		default:
			err = map[outcome]error{missing: ErrNotFound, stale: ErrStale, ahead: ErrStale, exists: ErrExists}[r.outcome]
		}
		break
	}
	if lost { // ⚑ a copy may have been stored, and its op overwritten by others
		err = fmt.Errorf("%w: %w", distlock.ErrOutcomeUnknown, err)
	}
	return r, cmp.Or(err, ErrStale)
}

// again marks an error for retry.Do.
func (how repeating) again(err error) error {
	effect := driver.MayHaveEffect(err)
	switch {
	case err == nil, errors.Is(err, driver.ErrRefused), errors.Is(err, driver.ErrForeign):
		return err
	case effect && how == once:
		return fmt.Errorf("the request was sent: %v", err)
	case effect:
		return fmt.Errorf("%w: %w: %w", driver.ErrTemporary, driver.ErrReplayed, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrTemporary, err)
}

// requestError is the error of a request without an answer.
func requestError(ctx context.Context, effect bool, err error) error {
	kind := distlock.ErrUnavailable
	switch {
	case effect:
		kind = distlock.ErrOutcomeUnknown
	case errors.Is(err, driver.ErrRefused), errors.Is(err, driver.ErrForeign):
		kind = distlock.ErrRefused
	case ctx.Err() != nil:
		kind = context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// AppendEvent appends an event to the session of a handle, with the changes of its state, in one step. A partial event
// is not stored. Under the lease of a run, the append belongs to it. Else it takes the lock for itself, and waits at
// most one second.
//
// Errors: ErrNotFound, ErrStale, ErrAnswered, ErrCodec, ErrTooLarge, and those of distlock. After an error other than
// ErrAnswered, ErrCodec and ErrTooLarge, later appends to the handle return it, too: get the session again.
func (s *Service) AppendEvent(ctx context.Context, to session.Session, e *session.Event) error {
	h, ok := to.(*handle)
	switch {
	case to == nil || e == nil:
		return public(distlock.ErrInvalidOption)
	case e.Partial:
		return nil
	case !ok || h == nil || h.service != s:
		return public(distlock.ErrInvalidOption)
	case h.failure() != nil:
		return h.failure()
	}
	kept, text, state, err := encode(e)
	switch {
	case err != nil:
	case len(text) > s.opts.MaxEvent:
		err = ErrTooLarge
	case answered(h.Events().(events), e):
		err = ErrAnswered
	}
	if err != nil {
		return public(err)
	}
	w := write{access: access{id: h.id}, op: unique(), state: state} // ⚑ one op for all copies
	err = s.step(ctx, h.id, func(ctx context.Context, lease *distlock.Lease) error {
		if err := h.failure(); err != nil {
			return err
		}
		l := s.leased(lease)
		at, err := h.enter(l)
		if err != nil {
			return err
		}
		w.born, w.last = at.Load().born, at.Load().op
		r, err := s.ask(ctx, &w.access, lease, safely, func() (reply, error) {
			w.record = seal(w.token, text)
			return s.store.append(ctx, w)
		})
		if err != nil {
			return err
		}
		h.moved(at, position{w.born, w.op}, kept, e.Actions.StateDelta, r.session.updated)
		if l.place == nil {
			l.place = at
		}
		return nil
	}, distlock.WithWait(ownWait))
	if err != nil {
		return h.fail(err)
	}
	return nil
}

// Append appends an event of a second writer, such as a webhook. It waits for a run of the session, at most
// Options.Wait, or joins the run of ctx, which sees the event in its next run. It fails as Get and AppendEvent do.
func (s *Service) Append(ctx context.Context, app, user, sessionID string, e *session.Event) error {
	of := id{app, user, sessionID}
	if err := of.check(); err != nil {
		return err
	}
	get := &session.GetRequest{AppName: app, UserID: user, SessionID: sessionID, NumRecentEvents: 1}
	if e == nil {
		return public(distlock.ErrInvalidOption)
	}
	if len(confirmations(e)) > 0 { // an earlier answer may be anywhere
		get.NumRecentEvents = 0
	}
	stored := false
	err := s.locker.Do(ctx, of.key(), func(ctx context.Context) error {
		found, err := s.Get(ctx, get)
		if err == nil {
			err = s.AppendEvent(ctx, found.Session, e)
		}
		stored = err == nil
		return err
	}, distlock.WithWait(s.opts.Wait))
	if stored { // also if the lease was lost since
		err = nil
	}
	return public(err)
}
