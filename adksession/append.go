package adksession

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/retry"
)

const (
	// repeatFor is how long a request is repeated.
	repeatFor = 5 * time.Second
	// ownWait is how long an append without a lease waits for its own. ⚑ A run that waits for its model
	// holds its lease: an append that came between would end the run.
	ownWait = time.Second
)

// leased returns what a lease knows of its session.
func (s *Service) leased(lease *distlock.Lease) *leased {
	return fencing.Attach(lease, s, func() any { return new(leased) }).(*leased)
}

// step runs fn as one step under the lease of a session: that of ctx, or one for this call, for which it
// waits. If wait is 0, a call without a lease of ctx has none.
func (s *Service) step(ctx context.Context, of id, wait time.Duration,
	fn func(context.Context, *distlock.Lease) error) error {
	if err := of.check(); err != nil {
		return err
	}
	if _, in := s.locker.FromContext(ctx, of.key()); !in && wait == 0 {
		return public(fn(ctx, nil))
	}
	stored := false
	err := s.locker.Do(ctx, of.key(), func(ctx context.Context) error {
		lease, _ := s.locker.FromContext(ctx, of.key())
		return lease.Guard(ctx, func(ctx context.Context) error {
			err := fn(ctx, lease)
			stored = err == nil
			return err
		})
	}, distlock.WithWait(wait))
	if stored { // ⚑ also if the lease was lost since
		return nil
	}
	return public(err)
}

// refusals are the errors of outcomes.
var refusals = []error{missing: ErrNotFound, stale: ErrStale, ahead: ErrStale, exists: ErrExists,
	ended: distlock.ErrInterrupted}

// ask sends a request, with the token of a lease unless that is nil, and sends it again for 5 seconds. It
// raises a token that the store finds too low, if the lock gives its owner a higher one: the store may
// have seen tokens from before the lock service lost its data.
func (s *Service) ask(ctx context.Context, lease *distlock.Lease, q request) (r reply, err error) {
	isRefused := func(err error) bool { return errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrForeign) }
	// ⚑ A late copy of a Create would revive a session, and that of a Delete remove the next one.
	again := func(err error) bool {
		return !isRefused(err) && (q.operation == opGet || q.operation == opAppend || !driver.MayHaveEffect(err))
	}
	l, lost := new(leased), false
	for {
		if lease != nil {
			l, q.token, q.since = s.leased(lease), lease.Fence(), fencing.Since(lease)
		}
		sent, err := retry.Do(ctx, repeatFor, again, func() (err error) {
			r, err = s.store.do(ctx, q)
			return err
		})
		lost = q.operation != opGet && (lost || sent || driver.MayHaveEffect(err))
		switch {
		case isRefused(err):
			err = fmt.Errorf("%w: %w", distlock.ErrRefused, err)
		case err != nil && ctx.Err() != nil:
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case err != nil:
			err = fmt.Errorf("%w: %w", distlock.ErrUnavailable, err)
		case q.operation == opGet && r.outcome == done && len(l.ops) > 0 && l.last() != r.op:
			err = ErrStale // ⚑ a failover has dropped an append of the lease, and an older handle must not go on
		case r.outcome == done:
			if q.operation == opCreate {
				l.ops = nil // ⚑ a handle of the session before does not enter this one
			}
			l.ops = append(l.ops, cmp.Or(q.op, r.op))
			return r, nil
		case r.outcome == stale && lease != nil && len(l.ops) == 0: // the store has taken no token of the lease
			if err = fencing.RaiseToken(ctx, lease, r.mark); err == nil {
				continue
			}
		default:
			err = refusals[r.outcome]
		}
		if lost { // ⚑ a copy may be stored, and its op overwritten by others
			err = fmt.Errorf("%w: %v", distlock.ErrOutcomeUnknown, err)
		}
		return r, err
	}
}

// AppendEvent appends an event to the session of a handle, with the changes of its state, in one step. A
// partial event is not stored. Under the lease of a run, the append belongs to the run. Else it takes the
// lock for itself, and waits at most one second.
//
// Errors: ErrNotFound, ErrStale, ErrAnswered, ErrCodec, ErrTooLarge, and those of distlock. After an
// error other than ErrAnswered, ErrCodec and ErrTooLarge, later appends to the handle return it, too: get
// the session again.
func (s *Service) AppendEvent(ctx context.Context, to session.Session, e *session.Event) error {
	h, _ := to.(*handle)
	switch {
	case to != nil && e != nil && e.Partial:
		return nil
	case h == nil || e == nil || h.service != s:
		return public(distlock.ErrInvalidOption)
	case h.fail(nil) != nil: // ⚑ no lock for it: RunLive goes on, and would delay the runs
		return h.fail(nil)
	}
	text, values, err := s.encode(e)
	switch {
	case err != nil:
		return public(err)
	case e.Author == "user" && answered(slices.Collect(h.Events().All()), e):
		return public(ErrAnswered)
	}
	op := rand.Text() // ⚑ one for all copies
	err = s.step(ctx, h.id, ownWait, func(ctx context.Context, lease *distlock.Lease) error {
		last, err := h.enter(s.leased(lease))
		if err != nil {
			return err
		}
		q := request{operation: opAppend, id: h.id, op: op, last: last, event: text, state: values}
		r, err := s.ask(ctx, lease, q)
		if err == nil {
			h.moved(ctx, op, e, r.updated)
		}
		return err
	})
	if err != nil {
		return h.fail(err)
	}
	return nil
}

// Append appends an event of a second writer, such as a webhook. It waits for a run of the session, at
// most Options.Wait, or joins the run of ctx, which sees the event in its next run. It fails as Get and
// AppendEvent do.
func (s *Service) Append(ctx context.Context, app, user, sessionID string, e *session.Event) error {
	if e == nil {
		return public(distlock.ErrInvalidOption)
	}
	get := &session.GetRequest{AppName: app, UserID: user, SessionID: sessionID, NumRecentEvents: 1}
	if slices.ContainsFunc(parts(e), func(p *genai.Part) bool { return p.FunctionResponse != nil }) {
		get.NumRecentEvents = 0 // ⚑ an earlier answer may be anywhere in the history
	}
	return s.step(ctx, id{app, user, sessionID}, s.opts.Wait, func(ctx context.Context, _ *distlock.Lease) error {
		found, err := s.Get(ctx, get)
		if err == nil {
			err = s.AppendEvent(ctx, found.Session, e)
		}
		return err
	})
}
