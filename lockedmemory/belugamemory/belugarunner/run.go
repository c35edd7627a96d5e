package belugarunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/runlease"
)

// LockRun makes the runs of a session follow each other, on all instances. The returned function
// waits for the session's lease and calls run under the lease. Use it for the Run of a Runner with
// a service of [WrapSessions] and an agent of [WrapAgent].
//
// The lease ends when the Update of [WrapSessions] returns, or else when the run returns. The
// stream yields no event before a successful Update, so every answer that a reader sees is stored.
// If Update fails, the stream yields its error. One of another service that is no core.Error, or has a
// retryable code, gets the code [belugamemory.ErrOutcomeUnknown]. An event or end without an Update
// becomes an error: a plugin may have hidden the error of the run. An error of this project keeps its
// code, whatever code the Runner or an agent has put around it.
//
// The context of run names the session. Saves of memories over the same Locker are part of the run.
// If the lease is lost or the Locker is closed, this context ends, and the stream ends with
// distlock.ErrLost or distlock.ErrClosed. A run inside a [belugamemory.Memory.Turn] of its session uses the
// lease of the turn. A run inside another run of its session is refused. Every iteration is a
// separate run.
//
// If the caller's context ends, the Runner returns, but its agent may still work. The lease then
// ends with the Update, with the agent of [WrapAgent], or at the age of [WithMaxHold]. Put time
// limits on the caller's context, not inside run. docs/design/runs.md has all states.
//
// Options are [WithKey], [WithWait], [WithBusy] and [WithMaxHold]. A nil Locker or run fails with
// distlock.ErrInvalidOption, an empty session ID with distlock.ErrInvalidKey.
func LockRun[I, E any](
	locker *distlock.Locker, run func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error], opts ...Option,
) (func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error], error) {
	s, err := settingsOf(locker, opts, forRuns)
	if err == nil && run == nil {
		err = codes.Invalid("the run is nil: give the Run of a Runner")
	}
	if err != nil {
		return nil, codes.Of("belugarunner.lockrun", err)
	}
	return lockRun(&s, run), nil
}

// lockRun is LockRun. If s counts its runs, it refuses a run after a Shutdown.
func lockRun[I, E any](
	s *settings, run func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error],
) func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error] {
	s.maxHold = cmp.Or(s.maxHold, fencing.Options(s.locker).MaxHold, 10*time.Minute)
	s.Wait = cmp.Or(s.Wait, lockedmemory.DefaultWait)
	return func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error] {
		return func(yield func(E, error) bool) {
			r := &lockedRun{session: sessionID}
			message, _ := any(input).(schema.Message)
			err := codes.Of("belugarunner.run", codes.TypedNil(message))
			if err != nil {
				yield(*new(E), err)
				return
			}
			if r.released, err = s.runs.begin(); err != nil {
				yield(*new(E), err)
				return
			}
			defer func() {
				if !r.owns {
					r.released()
				}
			}()
			var event E
			wanted := true
			show := func() bool { wanted = wanted && yield(event, r.failed); return wanted }
			err = s.runLocked(ctx, r, func() {
				for next, err := range run(r.ctx, sessionID, input) {
					err = codes.Inside("belugarunner.run", err)
					if r.failed != nil && !show() {
						return
					}
					if gone := r.gone(); gone != nil && err != nil {
						err = codes.Of("belugarunner.run", fmt.Errorf("%w: %w", gone, err))
					}
					event, r.failed = next, err
					if err == nil && (!r.stored.Load() || r.failure.Load() != nil || !show()) {
						return
					}
				}
			})
			if (r.failed == nil || show()) && err != nil && wanted {
				yield(*new(E), codes.Of("belugarunner.run", err))
			}
		}
	}
}

// WrapAgent wraps the agent of a Runner whose Run is locked, see [LockRun]. A cancelled run then
// releases its session as soon as its agent has ended, and stores nothing later. A panic of the
// agent first releases the lease, and then continues. Wrap the agent that the Runner is given, such
// as a runtime.Team, not its members. WrapAgent is an agent.Middleware.
func WrapAgent(inner agent.Agent) agent.Agent { return wrappedAgent{inner} }

type wrappedAgent struct{ agent.Agent }

func (a wrappedAgent) Invoke(ctx context.Context, input string, opts ...agent.Option) (answer string, err error) {
	asAgent(ctx, func(ctx context.Context) error {
		answer, err = a.Agent.Invoke(ctx, input, opts...)
		return err
	})
	return answer, err
}

func (a wrappedAgent) Stream(ctx context.Context, input string, opts ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		asAgent(ctx, func(ctx context.Context) (failed error) {
			a.Agent.Stream(ctx, input, opts...)(func(event agent.Event, err error) bool {
				failed = cmp.Or(err, failed)
				return yield(event, err)
			})
			return failed
		})
	}
}

type agentKey struct{}

// asAgent runs the work of an agent as a part of its run, unless a wrapped agent around it does so
// already. ⚑ It does not recover, so that the trace of a panic shows the agent.
func asAgent(ctx context.Context, work func(ctx context.Context) error) {
	r := runOf(ctx)
	if r == nil || ctx.Value(agentKey{}) == r {
		_ = work(ctx) // the caller has the error
		return
	}
	panics := true
	r.work.begin()
	defer func() { r.workEnded(ctx, 1, panics) }()
	if err := work(context.WithValue(ctx, agentKey{}, r)); err != nil {
		r.hidden.Store(&err)
	}
	panics = false
}

// runLocked calls iterate under the session's lease, as one operation for the Observer. It returns an
// error that the run did not yield.
func (s *settings) runLocked(ctx context.Context, r *lockedRun, iterate func()) error {
	ctx = core.WithSessionID(ctx, r.session)
	key, err := keyFor(ctx, r.session, s.key)
	if err != nil {
		return err
	}
	observer := fencing.Options(s.locker).Observer
	op := &distlock.Operation{Name: lockedmemory.OpTurn, Backend: fencing.Backend(s.locker), Key: key}
	ctx = observer.Start(ctx, op)
	defer observer.End(ctx, op)
	op.Outcome = distlock.OutcomeFailed // of a panic
	if err = s.withLease(ctx, op, r, iterate); err == nil {
		gone, failure := r.gone(), r.failure.Load()
		switch {
		case gone != nil && !errors.Is(r.failed, gone):
			err = gone
		case failure != nil && r.failed == nil:
			err = *failure
		case r.failed == nil && !r.stored.Load():
			err = r.unstored()
		}
	}
	if r.stored.Load() {
		op.Exchanges = 1
	}
	op.Err = cmp.Or(err, r.failed)
	op.Outcome = distlock.OutcomeOf(op.Err)
	if r.lease == nil && s.Busy == lockedmemory.Refuse && op.Outcome == distlock.OutcomeTimeout {
		op.Outcome = distlock.OutcomeBusy
	}
	return err
}

// withLease calls iterate under the lease on the key of op, and fails without a lease.
func (s *settings) withLease(ctx context.Context, op *distlock.Operation, r *lockedRun, iterate func()) (err error) {
	within, key, asked := ctx, op.Key, time.Now()
	acquire := s.locker.Acquire
	if s.Busy == lockedmemory.Refuse {
		acquire = s.locker.TryAcquire
	}
	lease, ok := s.locker.FromContext(ctx, key)
	if ok {
		if err = lease.Err(); err == nil && ctx.Value(runKey{lease}) != nil {
			err = codes.Self(errors.New("a run of this session is around the call, and its Update would take back the "+
				"inner turn: ask the inner agent without a run, or give it its own session"), distlock.BusyError{Self: true})
		}
	} else if lease, err = s.runs.wait(ctx, func(ctx context.Context) (*distlock.Lease, error) {
		return acquire(ctx, key, distlock.WithWait(s.Wait))
	}); err == nil {
		// ⚑ Not Join: a Runner whose context ends with the release after Update yields no event.
		within = valued{ctx, context.WithoutCancel(lease.Context())}
	}
	began := time.Now()
	op.Wait = began.Sub(asked)
	if err != nil {
		return err
	}
	latest := began.Add(s.maxHold)
	work, cancel := context.WithCancelCause(within)
	ended := make(chan time.Time, 1)
	stop := context.AfterFunc(lease.Context(), func() {
		ended <- time.Now()
		if !r.over.Load() {
			cancel(context.Cause(lease.Context()))
		}
	})
	r.lease, r.owns = lease, !ok
	r.ctx = runlease.With(context.WithValue(context.WithValue(work, runKey{}, r), runKey{lease}, r), lease)
	defer func() { // also after a panic
		cancelled := work.Err() != nil
		held := stop()
		cancel(nil)
		if cancelled {
			r.linger(time.Until(latest))
		} else {
			r.end(ctx)
		}
		if held {
			ended <- time.Now() // a cancelled run may release later
		}
		if r.owns {
			op.Held = (<-ended).Sub(began)
		}
	}()
	iterate()
	return nil
}

// lockedRun is a run under a lease.
type lockedRun struct {
	session string
	lease   *distlock.Lease
	owns    bool            // the run has acquired the lease; otherwise a Turn or a Do around the run has
	ctx     context.Context // ends with the caller's context, with a loss, and with Close

	released func() // counts the run as ended, once: after its release, or without a lease of its own

	// ⚑ failed is the error of the last pair. It is yielded with the next pair or after the release, so
	// that its reader holds no session.
	failed  error
	past    *runHistory // of a Runner of New, from its worker's Get
	created sync.Map    // the IDs of the sessions that this run has created
	given   atomic.Pointer[givenSession]
	work    atWork
	over    atomic.Bool           // the run has released its lease
	stored  atomic.Bool           // an Update has succeeded
	failure atomic.Pointer[error] // the error of its Update
	hidden  atomic.Pointer[error] // the error of its Get, Create or agent, which a plugin may hide
}

type runKey struct{ lease *distlock.Lease } // nil for the innermost run

// runOf returns the run that ctx is part of, or nil.
func runOf(ctx context.Context) *lockedRun {
	r, _ := ctx.Value(runKey{}).(*lockedRun)
	return r
}

// gone returns ErrLost or ErrClosed if this has ended the lease, and nil after a release.
func (r *lockedRun) gone() error {
	if err := r.lease.Err(); errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrClosed) {
		return err
	}
	return nil
}

// end releases the lease once, if the run has acquired it.
func (r *lockedRun) end(ctx context.Context) {
	if !r.owns || !r.over.CompareAndSwap(false, true) {
		return
	}
	// The lock service may report a loss before the deadline. Other errors are logged.
	if err := r.lease.Release(ctx); errors.Is(err, distlock.ErrLost) {
		r.fails(codes.Of("belugarunner.run", err))
	}
	r.released()
}

// linger keeps the lease of a cancelled run until its worker ends, or for atMost.
func (r *lockedRun) linger(atMost time.Duration) {
	if r.work.none() {
		atMost = 0
	}
	// ⚑ Not with the run's context, which has ended: the release waits for an Update under way.
	timer := time.AfterFunc(atMost, func() { fencing.Background(fencing.Locker(r.lease), r.end) })
	context.AfterFunc(r.lease.Context(), func() { // also after a loss
		timer.Stop()
		r.end(context.Background())
	})
}

// workEnded notes the end of an agent, or with 0 agents that the worker has no session. It ends a run
// that panics, and a cancelled run whose worker has only an Update left to do.
func (r *lockedRun) workEnded(ctx context.Context, agents int, panics bool) {
	none := r.work.end(agents) // ⚑ before the check of the context: a later cancellation finds no work
	if panics || none && r.ctx.Err() != nil {
		r.end(context.WithoutCancel(ctx)) // ⚑ the release waits for a Save under way
	}
}

// givenSession is the first session that a run has read: that of its worker.
type givenSession struct {
	session *runtime.Session
	id      string // before plugins saw the session
}

// keepsID returns an error if session is that of the worker, with another ID.
func (r *lockedRun) keepsID(session *runtime.Session) error {
	if r == nil || r.given.Load() == nil || session != r.given.Load().session || session.ID == r.given.Load().id {
		return nil
	}
	return codes.Invalid("a plugin has changed the ID of the session; nothing was written: " +
		"leave session.ID as it is, and give the run the ID")
}

// fails sets the error that the stream yields. The first error counts.
func (r *lockedRun) fails(err error) {
	if known := new(core.Error); !errors.As(err, &known) || core.IsRetryable(err) && !codes.Own(err) {
		err = core.NewError("belugarunner.run", belugamemory.ErrOutcomeUnknown, "the Update failed; the turn is stored or not", err)
	}
	r.failure.CompareAndSwap(nil, &err)
}

// unstored returns the error of a run that ends without an error and without an Update.
func (r *lockedRun) unstored() error {
	code, text := core.ErrInvalidInput, "the run has ended without an Update of WrapSessions; its turn is not stored"
	var cause error
	if hidden := r.hidden.Load(); hidden != nil {
		cause, text = *hidden, text+", and a plugin has hidden its error"
	} else {
		text += ": give the Runner the service of WrapSessions, and let no plugin hide an error"
	}
	if known := new(core.Error); errors.As(cause, &known) {
		code = known.Code
	}
	return core.NewError("belugarunner.run", code, text, cause)
}

// valued is a context with the values of another context before its own. With AfterFunc, a context
// made from it needs no goroutine that waits for its end.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}

func (v valued) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(v.Context, f) }
