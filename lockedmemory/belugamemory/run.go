package belugamemory

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

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
)

// LockRun makes the runs of a session follow each other, on all instances. The function that it
// returns waits for the session's lease and calls run under it. It is for the Run of a Runner with a
// service of [WrapSessions] and an agent of [WrapAgent].
//
// The lease ends when the Update of [WrapSessions] returns, or else when the run returns. If Update
// fails, the stream yields its error and no event, so every answer that a reader sees is stored.
// An error of the service that is no core.Error has the code [ErrOutcomeUnknown].
//
// The context of run names the session, also for memories over the same Locker: their Saves are
// part of the run. If the lease is lost or the Locker closed, that context ends, and the stream with
// distlock.ErrLost or distlock.ErrClosed. A run inside a [Memory.Turn] of its session uses the lease
// of that. One inside another run of its session is refused. Every iteration is a run of its own.
//
// If the caller's context ends, the Runner returns, and its agent may still be at work. The lease
// then ends with the Update, with an agent that [WrapAgent] wraps, or at the age of [WithMaxHold].
// Put time limits on the caller's context, not inside run. docs/design/runs.md has all states.
//
// Options are [WithKey], [WithWait], [WithBusy] and [WithMaxHold]. A nil Locker or run fails with
// distlock.ErrInvalidOption, an empty session ID with distlock.ErrInvalidKey.
func LockRun[I, E any](locker *distlock.Locker, run func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error],
	opts ...Option) (func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error], error) {
	s, err := settingsOf(locker, opts, forRuns)
	if err == nil && run == nil {
		err = invalid("the run is nil: give the Run of a Runner")
	}
	if err != nil {
		return nil, coded("belugamemory.lockrun", err)
	}
	s.maxHold = cmp.Or(s.maxHold, fencing.Options(locker).MaxHold, 10*time.Minute)
	s.wait = cmp.Or(s.wait, lockedmemory.DefaultWait)
	return func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error] {
		return func(yield func(E, error) bool) {
			var event E
			var failed error // ⚑ waits for the next pair, or the release: its reader holds no session
			wanted := true
			show := func() bool { wanted = wanted && yield(event, failed); return wanted }
			err := s.alone(ctx, locker, sessionID, func(r *lockedRun) {
				for next, err := range run(r.ctx, sessionID, input) {
					if failed != nil && !show() {
						return
					}
					if event, failed = next, r.yields(err); failed == nil && (r.failure.Load() != nil || !show()) {
						return
					}
				}
			})
			if (failed == nil || show()) && err != nil && wanted {
				yield(*new(E), coded("belugamemory.run", err))
			}
		}
	}, nil
}

// WrapAgent makes the agent of a Runner whose Run is locked, see [LockRun]. A cancelled run then
// frees its session as soon as its agent has ended, and stores nothing after that. A panic of the
// agent first releases the lease, and then goes on. All else is as without it. Wrap the agent that
// the Runner is given, such as a runtime.Team, not its members. WrapAgent is an agent.Middleware.
func WrapAgent(inner agent.Agent) agent.Agent { return wrappedAgent{inner} }

type wrappedAgent struct{ agent.Agent }

func (a wrappedAgent) Invoke(ctx context.Context, input string, opts ...agent.Option) (answer string, err error) {
	asAgent(ctx, func(ctx context.Context) { answer, err = a.Agent.Invoke(ctx, input, opts...) })
	return answer, err
}

func (a wrappedAgent) Stream(ctx context.Context, input string, opts ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		asAgent(ctx, func(ctx context.Context) { a.Agent.Stream(ctx, input, opts...)(yield) })
	}
}

type agentKey struct{}

// asAgent does the work of an agent as a part of its run, unless another wrapped agent does that
// already. ⚑ It does not recover: the trace of a panic stays that of the agent.
func asAgent(ctx context.Context, work func(ctx context.Context)) {
	r := runOf(ctx)
	if r == nil || ctx.Value(agentKey{}) == r {
		work(ctx)
		return
	}
	panics := true
	r.busy.Add(2)
	defer func() { r.rests(ctx, 2, panics) }()
	work(context.WithValue(ctx, agentKey{}, r))
	panics = false
}

// alone has iterate go through a run under the session's lease, as one operation for the Observer.
// It returns the error that the run did not yield itself.
func (s *settings) alone(ctx context.Context, locker *distlock.Locker, id string, iterate func(*lockedRun)) error {
	ctx = core.WithSessionID(ctx, id)
	key, err := keyFor(ctx, id, s.key)
	if err != nil {
		return err
	}
	observer := fencing.Options(locker).Observer
	op := &distlock.Operation{Name: lockedmemory.OpTurn, Backend: fencing.Backend(locker), Key: key}
	ctx = observer.Start(ctx, op)
	defer observer.End(ctx, op)
	op.Outcome = distlock.OutcomeFailed // unless it returns
	r := &lockedRun{session: id}
	if err = s.hold(ctx, locker, key, r, iterate); err == nil {
		err = r.rest()
	}
	op.Err = cmp.Or(err, r.yielded)
	op.Outcome = distlock.OutcomeOf(op.Err)
	if r.lease == nil && s.busy == lockedmemory.Refuse && op.Outcome == distlock.OutcomeTimeout {
		op.Outcome = distlock.OutcomeBusy
	}
	return err
}

// hold calls iterate under the lease on key, and fails without a lease.
func (s *settings) hold(ctx context.Context, locker *distlock.Locker, key string, r *lockedRun, iterate func(*lockedRun)) (err error) {
	within := ctx
	acquire := locker.Acquire
	if s.busy == lockedmemory.Refuse {
		acquire = locker.TryAcquire
	}
	lease, ok := locker.FromContext(ctx, key)
	if ok {
		if err = fencing.Check(ctx, lease); err == nil && ctx.Value(runKey{lease}) != nil {
			err = &selfError{errors.New("a run of this session is around the call, and its Update would take back the inner turn: " +
				"ask the inner agent without a run, or give it its own session"), distlock.BusyError{Self: true}}
		}
	} else if lease, err = acquire(ctx, key, distlock.WithWait(s.wait)); err == nil {
		// ⚑ Not Join: the release after Update must not cancel the context of the Runner, which
		// then yields no event.
		within = valued{ctx, context.WithoutCancel(lease.Context())}
	}
	if err != nil {
		return err
	}
	latest := time.Now().Add(s.maxHold)
	work, cancel := context.WithCancelCause(within)
	stop := context.AfterFunc(lease.Context(), func() {
		if !r.over.Load() {
			cancel(context.Cause(lease.Context()))
		}
	})
	r.lease, r.owns, r.ctx = lease, !ok, context.WithValue(context.WithValue(work, runKey{}, r), runKey{lease}, r)
	defer func() { // also of a panic
		cancelled := work.Err() != nil
		stop()
		cancel(nil)
		if cancelled {
			r.linger(time.Until(latest))
		} else {
			r.end(ctx)
		}
	}()
	iterate(r)
	return nil
}

// lockedRun is a run under a lease.
type lockedRun struct {
	session string
	lease   *distlock.Lease
	owns    bool            // the lease, which is otherwise that of a Turn or a Do around it
	ctx     context.Context // its end is that of the caller's context, a loss, or Close

	yielded error                 // the last one
	created sync.Map              // the IDs of sessions that only this run knows
	busy    atomic.Int32          // 1 from its worker's Get to its agent's end, and 2 for each agent at work
	over    atomic.Bool           // the run has released its lease
	failure atomic.Pointer[error] // of its Update
}

type runKey struct{ lease *distlock.Lease } // nil for the innermost run

// runOf returns the run that ctx is part of, or nil.
func runOf(ctx context.Context) *lockedRun {
	r, _ := ctx.Value(runKey{}).(*lockedRun)
	return r
}

// yields returns the error to yield for an error of the run.
func (r *lockedRun) yields(err error) error {
	if gone := r.gone(); gone != nil && err != nil {
		err = coded("belugamemory.run", fmt.Errorf("%w: %w", gone, err))
	}
	r.yielded = err
	return err
}

// rest returns the error that the run did not yield itself.
func (r *lockedRun) rest() error {
	if gone := r.gone(); gone != nil && !errors.Is(r.yielded, gone) {
		return gone
	}
	if failure := r.failure.Load(); failure != nil && r.yielded == nil {
		return *failure
	}
	return nil
}

// gone returns ErrLost or ErrClosed if the lease ended so, and nil after the run's own release.
func (r *lockedRun) gone() error {
	if err := r.lease.Err(); errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrClosed) {
		return err
	}
	return nil
}

// end releases the lease, if it is the run's and this is its first end.
func (r *lockedRun) end(ctx context.Context) {
	if !r.owns || !r.over.CompareAndSwap(false, true) {
		return
	}
	// The lock service may report a loss before the deadline. Other errors are logged.
	if err := r.lease.Release(ctx); errors.Is(err, distlock.ErrLost) {
		r.fails(coded("belugamemory.run", err))
	}
}

// linger leaves the lease for some time to the end of a worker that is at work.
func (r *lockedRun) linger(atMost time.Duration) {
	if r.busy.Load() == 0 {
		atMost = 0
	}
	// ⚑ Not with the context of the run, which has ended: the release waits for an Update under way.
	timer := time.AfterFunc(atMost, func() { fencing.Background(fencing.Locker(r.lease), r.end) })
	context.AfterFunc(r.lease.Context(), func() { timer.Stop() })
}

// rests ends a run that was cancelled, or panics, when its worker has no more to do than an Update.
func (r *lockedRun) rests(ctx context.Context, share int32, panics bool) {
	r.busy.Add(-share)
	r.busy.CompareAndSwap(1, 0) // ⚑ before the look at the context: a cancellation after that finds it
	if panics || r.busy.Load() == 0 && r.ctx.Err() != nil {
		r.end(context.WithoutCancel(ctx)) // ⚑ so it waits for a Save under way
	}
}

// fails notes the error that the stream is to yield. The first one counts.
func (r *lockedRun) fails(err error) {
	if known := new(core.Error); !errors.As(err, &known) {
		err = core.NewError("belugamemory.run", ErrOutcomeUnknown, "the Update failed; the turn is stored or not", err)
	}
	r.failure.CompareAndSwap(nil, &err)
}

// valued is a context with the values of another one in front of its own.
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
