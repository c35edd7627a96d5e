package belugarunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

// The operations of a run without and with the ID of a message, which makes its repetition safe.
const (
	opRun     = "belugarunner.run"
	opRunOnce = "belugarunner.run_once"
)

// run is one run of a session. Its worker is that of Beluga's Runner, and reads and stores the session.
type run struct {
	*Runner
	outer *run // around this one, or nil
	op    string
	ID    string // of the session. ⚑ That of the message stays out: contexts have the run.
	lease *distlock.Lease
	owns  bool // the lease is of this run; otherwise a Turn or a Do around the run has it

	sessionID string        // of the session that the worker has read
	past      []schema.Turn // of this session
	asked     atomic.Bool   // a model has a History
	tools     []schema.Message

	feed    *feed         // to the reader
	goesOn  bool          // without its reader
	keeps   bool          // its events, if it is stopped
	cut     bool          // by a stop; as the outcome below
	pumping atomic.Bool   // the agent was asked
	pumped  chan struct{} // closed when the agent has ended

	// ⚑ The worker writes the outcome. Nothing reads it before the worker's end.
	hidden  error // of Get, Create or the agent, which a plugin may hide
	failure error // of Update
	stored  bool  // an Update has succeeded
}

type runKey struct{}

// runOf returns the innermost run that ctx is part of, or nil.
func runOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

// start runs the agent under the session's lease. The feed ends after the release, or as soon as the reader has left.
// Then the lease is kept in the background until the worker has ended, see docs/design/beluga-runner.md.
func (r *Runner) start(reader context.Context, sessionID string, input schema.Message, feed *feed) error {
	if sessionID == "" {
		return errEmptyID
	}
	if err := codes.TypedNil(input); err != nil {
		return err
	}
	id, input, err := r.idOf(input)
	if err != nil {
		return err
	}
	if err := r.begin(); err != nil {
		return err
	}
	run := &run{Runner: r, outer: runOf(reader), ID: sessionID, op: opRun, feed: feed, pumped: make(chan struct{})}
	if id != "" {
		run.op = opRunOnce
	}
	// ⚑ Each run has a runtime.Runner of its own, whose Shutdown returns when the worker of this run has
	// ended. Nothing else shows this end.
	beluga := runtime.NewRunner(watchedAgent{r.agent, run}, runtime.WithSessionService(runSessions{run, id}),
		runtime.WithPlugins(append(slices.Clip(r.opts.Plugins), historyPlugin{run})...))
	go func() {
		defer r.open.Done()
		var events []agent.Event
		latest := time.Now() // of the release
		stored, err := r.underLease(reader, run, id, func(work context.Context) (err error) {
			latest = time.Now().Add(r.opts.MaxHold)
			if run.keeps || run.goesOn {
				detached, end := run.detached(work, reader, latest)
				defer end()
				work = detached
			}
			events, err = run.ask(work, beluga, input)
			if err != nil && reader.Err() != nil {
				if errors.Is(err, context.Canceled) { // that of the worker's context
					err = reader.Err()
				}
				feed.end(nil, err)
				run.linger(beluga, latest)
			}
			return err
		})
		if stored != nil {
			events, err = r.replay(stored)
		}
		if asked := run.pumping.Load(); r.opts.Stream && asked {
			events = slices.DeleteFunc(events, func(e agent.Event) bool { return e.Type != agent.EventDone })
			if stored != nil && err == nil { // ⚑ the reader has seen other events
				err = fmt.Errorf("%w: the message was answered since: repeat it", distlock.ErrLost)
			}
		}
		if err != nil { // as of a loss that the release finds
			events = nil
		}
		feed.end(events, codes.Of(run.op, err))
		limited, cancel := context.WithDeadline(context.Background(), latest)
		defer cancel()
		if err != nil || stored != nil { // the worker may be at work after a loss
			_ = beluga.Shutdown(limited)
		}
		if run.pumping.Load() { // ⚑ an agent that was cut: a Shutdown would close the connections of its tools
			select {
			case <-run.pumped:
			case <-limited.Done():
			}
		}
	}()
	return nil
}

// underLease calls work under the session's lease, unless an answer to the message is stored. A Shutdown ends the
// wait for the lease, and not the work.
func (r *Runner) underLease(ctx context.Context, run *run, id string, work codes.Step) (stored [][]byte, err error) {
	ctx = core.WithSessionID(ctx, run.ID)
	key, _ := belugamemory.SessionKey(ctx)
	_, within := r.locker.FromContext(ctx, key)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(r.closing, cancel)
	began := false
	err = codes.Under(run.op, func(step codes.Step) (err error) {
		if id == "" {
			return r.turns.Turn(waiting, step)
		}
		stored, err = r.turns.Once(waiting, id, step)
		return err
	},
		func(ctx context.Context) error {
			if began = stop(); !began {
				return errShutDown(opRun)
			}
			run.lease, _ = r.locker.FromContext(ctx, key)
			run.owns = !within
			run.keeps = r.opts.KeepPartial && run.owns
			_, inside := lockedmemory.Lease(waiting)
			run.goesOn = r.opts.Stream && !r.opts.EndWithReader && run.owns && !inside // ⚑ the parent may be stopped
			if err := waiting.Err(); err != nil && run.goesOn {
				return err
			}
			if run.outer.has(run.lease) {
				return codes.Invalid("a run of this session is around the call, and its Update would take back the " +
					"inner turn: ask the inner agent without a run, or give it its own session")
			}
			return work(context.WithValue(ctx, runKey{}, run))
		})
	if stored == nil && !began && ctx.Err() == nil && r.closing.Err() != nil {
		return nil, errShutDown(opRun)
	}
	if began && run.wasAsked() && errors.Is(err, distlock.ErrLost) && !errors.Is(err, distlock.ErrOutcomeUnknown) {
		// ⚑ The stop came first. After a loss, a client would repeat the message.
		err = codes.Of(run.op, fmt.Errorf("%w: its events came too late to be stored: %v", distlock.ErrInterrupted, err))
	}
	return stored, err
}

// has reports whether the run, or a run around it, has the lease.
func (r *run) has(lease *distlock.Lease) bool {
	return r != nil && (r.lease == lease || r.outer.has(lease))
}

// ask asks the agent, and returns the events after the turn is stored.
func (r *run) ask(ctx context.Context, beluga *runtime.Runner, input schema.Message) (events []agent.Event, err error) {
	for event, err := range beluga.Run(ctx, r.ID, input) {
		if err != nil {
			return nil, codes.Inside(r.op, err)
		}
		events = append(events, event)
	}
	switch { // the worker has ended
	case r.failure != nil:
		return nil, r.failure
	case !r.stored:
		return nil, r.unstored()
	}
	return events, nil
}

// linger keeps the lease of a cancelled run until its worker and a Save under way have ended, or until a
// loss, a StopSession or the latest time.
func (r *run) linger(beluga *runtime.Runner, latest time.Time) {
	limited, cancel := context.WithDeadline(r.lease.Context(), latest)
	defer cancel()
	if beluga.Shutdown(limited) == nil {
		_ = r.lease.Guard(limited, func(context.Context) error { return nil })
	}
}

// unstored returns the error of a run that ends without an error and without an Update.
func (r *run) unstored() error {
	code := core.ErrInvalidInput
	if known := new(core.Error); errors.As(r.hidden, &known) {
		code = known.Code
	}
	return core.NewError(opRun, code, "the run has ended without an Update, and a plugin has hidden its error; "+
		"its turn is not stored", r.hidden)
}

// runSessions is the session service of a run. Beluga's worker calls Get, else Create, and Update, once and
// last.
type runSessions struct {
	run *run
	id  string // of the message, or ""
}

func (s runSessions) Get(ctx context.Context, sessionID string) (*runtime.Session, error) {
	r := s.run
	get := r.sessions.Get
	if r.own != nil {
		get = func(ctx context.Context, id string) (*runtime.Session, error) {
			return r.own.get(ctx, id, r.opts.History)
		}
	}
	session, err := get(ctx, sessionID)
	switch {
	case err != nil || session == nil:
	case session.ID != sessionID:
		err = codes.Of(opRun, codes.Invalid("the service returned a session with another ID: give the run the ID of the session"))
	default:
		err = r.ofAgent(session)
	}
	return r.read(session, err)
}

// ofAgent fails for a session of another agent.
func (r *Runner) ofAgent(session *runtime.Session) error {
	if session.AgentID == "" || session.AgentID == r.opts.AgentID {
		return nil
	}
	return codes.Of(opRun, codes.Invalid("the session belongs to the agent %q, and this is the Runner of %q: "+
		"use another session ID, or give the Runner the old ID with Options.AgentID", session.AgentID, r.opts.AgentID))
}

func (s runSessions) Create(ctx context.Context, _ string) (*runtime.Session, error) {
	session, err := s.run.sessions.Create(ctx, s.run.opts.AgentID)
	if s.id != "" && errors.Is(err, distlock.ErrOutcomeUnknown) { // the message is open, whether the session is there or not
		err = codes.Of(opRunOnce, errors.Unwrap(err))
	}
	return s.run.read(session, err)
}

// read notes the session that the worker has read.
func (r *run) read(session *runtime.Session, err error) (*runtime.Session, error) {
	if r.hidden = err; err == nil && session != nil {
		r.sessionID = session.ID
	}
	return session, err
}

func (s runSessions) Update(ctx context.Context, session *runtime.Session) error {
	err := s.run.update(ctx, session, s.id)
	s.run.stored = err == nil
	if known := new(core.Error); err != nil && (!errors.As(err, &known) || core.IsRetryable(err) && !codes.Own(err)) {
		s.run.failure = core.NewError(opRun, belugamemory.ErrOutcomeUnknown, "the Update failed; the turn is stored or not", err)
	} else {
		s.run.failure = err
	}
	return err
}

func (r *run) update(ctx context.Context, session *runtime.Session, id string) error {
	if session.ID != r.sessionID {
		return codes.Of(opRun, codes.Invalid("a plugin has changed the ID of the session; nothing was written: "+
			"leave session.ID as it is, and give the run the ID"))
	}
	if err := r.addMetadata(session, id != ""); err != nil {
		return codes.Of(opRun, err)
	}
	if r.own != nil && r.owns { // its Update is one write
		ctx = lastwrite.Announce(ctx)
	}
	// ⚑ A lease that was asked is held: only this check refuses the Update of another service.
	err := r.lease.Err()
	if !r.keeps {
		err = cmp.Or(err, context.Cause(r.lease.Context()))
	}
	if err != nil {
		return codes.Of(opRun, fmt.Errorf("nothing was written: %w", err))
	}
	if r.own != nil {
		op := opUpdate
		if id != "" {
			op = opRunOnce
		}
		return r.own.update(ctx, op, session, id)
	}
	// ⚑ The run of a StopSession does not wait for its worker. Its release waits for a step.
	return r.lease.Guard(ctx, func(ctx context.Context) error { return r.sessions.Update(ctx, session) })
}

// Delete is not called by Beluga's Runner.
func (s runSessions) Delete(ctx context.Context, sessionID string) error {
	return s.run.sessions.Delete(ctx, sessionID)
}
