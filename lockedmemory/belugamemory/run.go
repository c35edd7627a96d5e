package belugamemory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

const defaultMaxHold = 10 * time.Minute

// LockRun makes the runs of a session stand one after the other, on all instances: what it returns waits for the session, and then is
// run, under the session's lease from before it reads the session until it has ended. It fits the Run of Beluga's Runner:
//
//	run, err := belugamemory.LockRun(locker, runner.Run)
//	…
//	for event, err := range run(ctx, sessionID, input) {
//
// The context of run names the session, also for memories over the same locker: what they save is part of the run. It ends with the
// caller's, when the lease is lost, and when the locker is closed. In the last two cases an error says so that matches distlock.ErrLost or
// distlock.ErrClosed: the run's own, if it still yields one, else one more at the end. A run within a run of the same session, or within
// a [Memory.Turn] of it, is part of that, and what it leaves behind does not keep the lease. Every iteration is a run of its own. An empty
// session ID is refused. Options are [WithKey], [WithTurnWait], [WithBusy] and [WithMaxHold].
//
// The lease is given back when the iteration is over, so do not linger over the events. What uses the session in the body of the loop,
// with the context from outside, waits for the very run that it delays.
//
// A Runner whose context has ended returns while its agent may still be at work, and may still write. Such a run keeps the lease
// until its end is seen:
//
//   - its Update has come through [WrapSessions];
//   - its agent has failed, if it has [OnEnd] for a hook;
//   - nobody has its context any more, which shows when garbage is collected: every two minutes at least;
//   - or else the lease has reached the age of [WithMaxHold]. An Update that comes through WrapSessions later is refused; another
//     service would take it.
//
// So put time limits on the context that is given to what LockRun returns. A run that has one of its own, inside, is thought to have ended
// when it returns: its worker's Update is refused if it comes later. The states of a run are in the package's documentation.
//
// A nil locker or run, and options out of range, are refused with distlock.ErrInvalidOption. Busy, unavailable and lost are
// yielded with the codes that a [Memory] gives them; run was not called if there was no lease.
func LockRun[I, E any](locker *distlock.Locker, run func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error],
	opts ...Option) (func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error], error) {
	s, err := settingsOf(opts, forRuns)
	switch {
	case err != nil:
	case locker == nil:
		err = fmt.Errorf("%w: the Locker is nil: make one with lockurl.Open, or take that of a Memory", distlock.ErrInvalidOption)
	case run == nil:
		err = fmt.Errorf("%w: the run is nil: give the Run of a Runner", distlock.ErrInvalidOption)
	case s.busy == lockedmemory.Refuse && s.turnWait > 0:
		err = fmt.Errorf("%w: WithTurnWait has %s, but WithBusy has Refuse, and then no run waits: leave one of them out",
			distlock.ErrInvalidOption, s.turnWait)
	}
	if err != nil {
		return nil, coded("belugamemory.lockrun", err)
	}
	if s.maxHold == 0 {
		s.maxHold = locker.Options().MaxHold
	}
	if s.maxHold == 0 {
		s.maxHold = defaultMaxHold
	}
	return func(ctx context.Context, sessionID string, input I) iter.Seq2[E, error] {
		return func(yield func(E, error) bool) {
			wanted := true
			err := s.alone(ctx, locker, sessionID, func(ctx context.Context, tell func(error) error) {
				for event, err := range run(ctx, sessionID, input) {
					if wanted = yield(event, tell(err)); !wanted {
						return
					}
				}
			})
			if err != nil && wanted {
				var none E
				yield(none, coded("belugamemory.run", err))
			}
		}
	}, nil
}

// alone has iterate go through a run under the session's lease, as one operation for the Observer. Iterate passes the run's errors through
// tell. The error that alone returns is what there is to say besides.
func (s *settings) alone(ctx context.Context, locker *distlock.Locker, sessionID string,
	iterate func(ctx context.Context, tell func(error) error)) error {
	ctx = core.WithSessionID(ctx, sessionID)
	key, err := keyFor(ctx, s.key)
	if err != nil {
		return err
	}
	observer := locker.Options().Observer
	op := &distlock.Operation{Name: lockedmemory.OpTurn, Backend: locker.Backend(), Key: key}
	ctx = observer.Start(ctx, op)
	defer observer.End(ctx, op)
	op.Outcome = distlock.OutcomeFailed // unless it returns
	ran := false
	last, err := s.hold(ctx, locker, key, func(ctx context.Context, tell func(error) error) {
		ran = true
		iterate(ctx, tell)
	})
	op.Err = cmp.Or(err, last)
	op.Outcome = distlock.OutcomeOf(op.Err)
	if !ran && s.busy == lockedmemory.Refuse && op.Outcome == distlock.OutcomeTimeout {
		op.Outcome = distlock.OutcomeBusy
	}
	return err
}

// hold calls iterate under the lease on key. Last is what the run has yielded last, err what there is to say besides.
func (s *settings) hold(ctx context.Context, locker *distlock.Locker, key string,
	iterate func(ctx context.Context, tell func(error) error)) (last, err error) {
	if lease, ok := locker.FromContext(ctx, key); ok { // it is given back by whoever has acquired it
		if err := lease.Check(ctx); err != nil {
			return nil, err
		}
		work, leave := lease.Join(ctx)
		defer leave()
		r := &lockedRun{locker: locker, lease: lease, ended: work.Done()}
		t := &teller{lease: lease}
		iterate(context.WithValue(work, ticketKey{}, &ticket{r}), t.tell)
		return t.last, t.rest()
	}
	lease, err := locker.Acquire(distlock.WithWait(ctx, s.runWait()), key)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	work, leave := lease.Join(ctx)
	r := &lockedRun{locker: locker, lease: lease, ended: work.Done()}
	t := &teller{lease: lease}
	work = r.watch(work)
	defer func() { // also of a panic
		cancelled := work.Err() != nil // by the caller, or because the lease has ended: then there is nothing to keep
		leave()
		if cancelled {
			r.linger(s.maxHold - time.Since(began))
			return
		}
		// The service may know of a loss before the deadline has passed.
		if removal := lease.Release(ctx); err == nil && !t.said && errors.Is(removal, distlock.ErrLost) {
			err = removal
		}
	}()
	iterate(work, t.tell)
	return t.last, t.rest()
}

func (s *settings) runWait() time.Duration {
	if s.busy == lockedmemory.Wait && s.turnWait == 0 {
		return -1
	}
	return s.turnWait
}

// teller sees to it that a run whose lease has ended under it says so: with its own error if it has one, else at the end.
type teller struct {
	lease *distlock.Lease
	last  error // what the run has yielded last
	said  bool
}

// tell returns what is to be yielded for an error of the run.
func (t *teller) tell(err error) error {
	if gone := t.gone(); gone != nil && err != nil {
		t.said = true
		err = coded("belugamemory.run", fmt.Errorf("%w: %w", gone, err))
	}
	t.last = err
	return err
}

// rest is what is still to be said when the run is over.
func (t *teller) rest() error {
	if t.said {
		return nil
	}
	return t.gone()
}

// gone tells of a lease that was lost, or was taken away by the Locker's Close. One that is released by the run itself is its own affair.
func (t *teller) gone() error {
	if err := t.lease.Err(); errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrClosed) {
		return err
	}
	return nil
}

// lockedRun is a run under a lease. ⚑ It knows nothing that leads to the run's context: that would never be garbage.
type lockedRun struct {
	locker *distlock.Locker
	lease  *distlock.Lease
	ended  <-chan struct{} // closed when the run's context has ended

	mu      sync.Mutex
	created map[string]bool // the IDs of sessions that it has made: nobody else knows them yet
	over    bool            // its end was seen
	lingers bool            // and the lease waits for that
}

// ticket is what the context of a run carries. When it is garbage, nobody can act for the run any more.
type ticket struct{ run *lockedRun }

type ticketKey struct{}

// watch puts the run into ctx, and takes it for the end of the run that nobody has what comes of that any more.
func (r *lockedRun) watch(ctx context.Context) context.Context {
	t := &ticket{r}
	runtime.AddCleanup(t, (*lockedRun).end, r)
	return context.WithValue(ctx, ticketKey{}, t)
}

// runOf returns the run that ctx is part of, or nil.
func runOf(ctx context.Context) *lockedRun {
	t, _ := ctx.Value(ticketKey{}).(*ticket)
	if t == nil {
		return nil
	}
	return t.run
}

// end says that the run's end has been seen.
func (r *lockedRun) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over && r.lingers {
		r.giveBack()
	}
	r.over = true
}

// linger keeps the lease until the run's end is seen, or some time has passed.
func (r *lockedRun) linger(atMost time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lingers = true
	if r.over || atMost <= 0 {
		r.over = true
		r.giveBack()
		return
	}
	timer := time.AfterFunc(atMost, r.end)
	// However the lease ends, by Close too, nothing is left to wait for.
	context.AfterFunc(r.lease.Context(), func() { timer.Stop() })
}

func (r *lockedRun) giveBack() {
	// What the release says is told to the Observer and the Logger.
	r.locker.Background(func(ctx context.Context) { _ = r.lease.Release(ctx) })
}

func (r *lockedRun) hasCreated(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.created[session]
}

func (r *lockedRun) creates(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.created == nil {
		r.created = make(map[string]bool)
	}
	r.created[session] = true
}

// OnEnd is a hook for the agent of a Runner whose Run is locked, see [LockRun]:
//
//	agent.WithHooks(agent.Hooks{OnEnd: belugamemory.OnEnd})
//
// It tells when the agent of a run that was cancelled has failed, so that the session is free for the next run at once. Runs that were not
// cancelled are not concerned, whatever time limits the agent has itself. Only the Runner's own agent is to have it: one that works for
// that ends earlier.
func OnEnd(ctx context.Context, _ string, err error) {
	r := runOf(ctx)
	if r == nil || err == nil {
		return
	}
	select {
	case <-r.ended: // not ctx, which the agent has made
		r.end()
	default:
	}
}
