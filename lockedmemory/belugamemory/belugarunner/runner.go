package belugarunner

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/services"
)

var _ core.Lifecycle = (*Runner)(nil)

// Runner runs an agent over sessions that all instances share. The runs of a session follow each
// other, and every answer that a reader sees is stored. It is a core.Lifecycle, and safe for
// concurrent use.
type Runner struct {
	opts     Options
	agent    agent.Agent
	locker   *distlock.Locker
	turns    *lockedmemory.LockedMemory[[]byte, struct{}]
	sessions runtime.SessionService
	own      *sessionService // nil with Options.SessionService
	servers  services.Servers

	mu      sync.Mutex
	open    sync.WaitGroup  // the runs, until their release and the end of their workers
	closing context.Context // ends with the first Shutdown
	close   context.CancelFunc

	leaving sync.Once
	left    chan struct{} // closed after the services were left
	err     error         // of leaving them
}

// New makes a Runner of Beluga for an agent, with sessions and locks on the server of a URL, see
// lockurl.OpenDriver. A PostgreSQL has the schemas of pglock.Migrate and pgstore.Migrate. New asks
// the servers once, and waits for each for at most 5 s. Call [Runner.Shutdown] when the process ends.
//
// A session names its agent by ID. A run of an agent with another ID fails with core.ErrInvalidInput
// and changes nothing.
//
// Runners and memories "locked" of this process share the connections of a URL, and a Locker if the
// options of their locks are equal: namespace, TTL, Interruptible and Observer. Give such a memory neither
// "wait" nor "max_hold".
//
// A nil agent, an agent without an ID, and wrong options fail with core.ErrInvalidInput. A server that
// refuses or does not answer fails with core.ErrProviderDown. Then nothing stays open.
func New(a agent.Agent, url string, opts *Options) (*Runner, error) {
	r, err := newRunner(a, opts)
	if err == nil {
		err = r.connect(url)
	}
	if err != nil {
		return nil, codes.Of("belugarunner.new", err)
	}
	return r, nil
}

// newRunner makes a Runner without servers.
func newRunner(a agent.Agent, opts *Options) (*Runner, error) {
	s, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if isNil(a) {
		return nil, codes.Invalid("the agent is nil: give the agent of the Runner")
	}
	if s.AgentID = cmp.Or(s.AgentID, a.ID()); s.AgentID == "" {
		return nil, codes.Invalid("the agent has no ID, and sessions belong to an ID: set Options.AgentID")
	}
	r := &Runner{opts: s, sessions: s.SessionService, agent: a, left: make(chan struct{})}
	r.closing, r.close = context.WithCancel(context.Background())
	return r, nil
}

// connect opens the servers of the locks and the sessions.
func (r *Runner) connect(url string) (err error) {
	r.servers = services.Servers{LocksAt: services.Setting{Name: "url", URL: url}, Timeout: 5 * time.Second}
	if r.sessions == nil {
		r.servers.SessionsAt = services.Setting{Name: "Options.Store", URL: r.opts.Store}
	}
	defer func() {
		if err != nil {
			r.servers.Leave()
		}
	}()
	locker, err := r.servers.Open(r.opts.ofLocks())
	if err != nil {
		return err
	}
	if r.sessions != nil {
		return r.lockWith(locker, noMemory{})
	}
	kept, err := r.servers.Sessions.Sessions(r.opts.ofSessions(), true)
	if err != nil {
		return err
	}
	if r.own, err = newSessionService(kept, locker, r.opts.Wait); err == nil {
		err = r.lockWith(locker, r.own.store)
	}
	if err != nil {
		return err
	}
	r.sessions = r.own
	return r.servers.AskSessions(r.own.locked.Ping)
}

// lockWith lets the runs follow each other under a Locker. ⚑ The policy is for runs alone: a Delete would
// interrupt them.
func (r *Runner) lockWith(locker *distlock.Locker, store lockedmemory.Memory[[]byte, struct{}]) (err error) {
	r.locker = locker
	r.turns, err = lockedmemory.New(store, locker, belugamemory.SessionKey,
		&lockedmemory.Options{Wait: r.opts.Wait, Busy: r.opts.Busy, Grace: r.opts.Grace, After: r.opts.After})
	return err
}

// noMemory is not called: with Options.SessionService, the lock of a run is that of a turn without a memory.
type noMemory struct {
	lockedmemory.Memory[[]byte, struct{}]
}

// isNil reports whether v is nil, or a nil pointer, function, map or list of its type.
func isNil[T any](v T) bool {
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		return value.IsNil()
	}
	return false
}

// Run waits for the session, runs the agent on the input, and yields the events after the turn is stored
// and the session is free, or one error. With Options.Stream, it yields each event at once. A session that does
// not exist is created with this ID. An empty ID fails with distlock.ErrInvalidKey. The tenant of ctx owns the
// session.
//
// If the session cannot be stored, Run yields the error and no event. An error of another service that is
// no core.Error, or has a retryable code, gets the code [belugamemory.ErrOutcomeUnknown]. An error that a
// plugin hides is yielded, too. If the lease is lost, the context of the run ends, and Run yields
// distlock.ErrLost.
//
// The context of the agent names the session. Saves of memories over the same Locker are part of the run.
// With a message ID in the metadata of the input, see Options.MessageID, the message is answered once: a
// repetition waits for the run under way, and yields the events of the stored answer: the calls and results of
// tools, the text, and done. The agent is not asked. So repeat a run after an error, in any process. After
// lockedmemory.ErrAnswerGone, the answer was trimmed, or replaced by a plugin. The message that plugins, the
// agent and the session get has no ID.
//
// A run inside a [belugamemory.Memory.Turn] of its session uses the lease of the turn. A run inside another
// run of its session is refused. Every iteration is a separate run.
//
// The number of runs at the same time has no limit: let the server limit its requests. A run may
// contain a run of another session. If the other session's run contains one of this session, each
// waits for the other, for at most Options.Wait.
//
// If ctx ends, Run returns. Its session is free as soon as the worker of Beluga has ended, and at the
// age of Options.MaxHold at the latest. After [Runner.Shutdown], Run fails with
// belugamemory.ErrShuttingDown and distlock.ErrClosed.
func (r *Runner) Run(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		reader, leave := context.WithCancel(ctx)
		defer leave()
		feed := newFeed()
		defer feed.leave()
		if err := r.start(reader, sessionID, input, feed); err != nil {
			feed.end(nil, err)
		}
		for ended := false; !ended; {
			<-feed.more
			events, last, err := feed.take()
			for _, event := range events {
				if !yield(event, nil) {
					return
				}
			}
			if err != nil {
				yield(agent.Event{}, codes.Of(opRun, err))
			}
			ended = last
		}
	}
}

// errShutDown says that another instance can do the run.
func errShutDown(op string) error {
	return core.NewError(op, codes.ShuttingDown, "the Runner was shut down; nothing was done: ask another instance",
		distlock.ErrClosed)
}

// begin opens a run. It fails after a Shutdown.
func (r *Runner) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing.Err() != nil {
		return errShutDown(opRun)
	}
	r.open.Add(1)
	return nil
}

// StopSession ends the run of a session, in any process, and the runs that wait for it: they yield
// distlock.ErrInterrupted, or lockedmemory.ErrStopped for a message with an ID, which is never answered: only a
// repetition in the milliseconds between the end of the run and that of StopSession is. With Options.KeepPartial,
// the run stores its events so far, within the grace, and yields them. Nothing of the runs is stored after
// StopSession has returned nil. A run that ignores its context ends at once, too. The context ends at once with
// Options.Interruptible, else at the next renewal. StopSession waits for the end of the run, at most the grace: with
// a grace of 0, the store refuses the run.
//
// With Options.SessionService, the grace must be enough for the run to end. Otherwise StopSession fails with
// distlock.ErrOutcomeUnknown. The runs that wait then go on. After an error, repeat the call. It fails with
// core.ErrInvalidInput in the context of a run of the session, and over a quorum.
func (r *Runner) StopSession(ctx context.Context, sessionID string, grace time.Duration) error {
	_, err := r.stop(ctx, "belugarunner.stop_session", sessionID, "", grace)
	return err
}

// StopMessage ends the run of the message with an ID, in any process: the run yields lockedmemory.ErrStopped or
// distlock.ErrInterrupted, and the message is never answered, also if it waits or comes later. stored says that
// its answer is stored, whole or partial. See lockedmemory.LockedMemory.Stop. With Options.SessionService it fails
// with errors.ErrUnsupported.
func (r *Runner) StopMessage(ctx context.Context, sessionID, messageID string, grace time.Duration) (stored bool, err error) {
	const op = "belugarunner.stop_message"
	if messageID == "" {
		return false, codes.Of(op, lockedmemory.ErrInvalidID)
	}
	return r.stop(ctx, op, sessionID, messageID, grace)
}

func (r *Runner) stop(ctx context.Context, op, sessionID, messageID string, grace time.Duration) (stored bool, err error) {
	if err = errEmptyID; sessionID != "" {
		stored, err = r.turns.Stop(core.WithSessionID(ctx, sessionID), messageID, grace)
	}
	return stored, codes.Of(op, err)
}

// Shutdown refuses new runs and ends those that wait for their session: they fail with
// belugamemory.ErrShuttingDown, so that clients ask another instance. It waits for all others and their
// workers, then releases the leases and closes the connections, unless another Runner or memory uses
// them. Every Shutdown waits for that. If ctx ends first, Shutdown returns its error, and the work
// continues in the background. In the context of a run of this Runner it fails with
// core.ErrInvalidInput.
func (r *Runner) Shutdown(ctx context.Context) error {
	const op = "belugarunner.shutdown"
	for around := runOf(ctx); around != nil; around = around.outer {
		if around.Runner == r {
			return codes.Of(op, codes.Invalid("a run of this Runner is around the call, and Shutdown waits for its end: "+
				"call it outside of runs"))
		}
	}
	r.mu.Lock()
	r.close() // no run begins from here on
	r.mu.Unlock()
	r.leaving.Do(func() {
		go func() {
			r.open.Wait()
			for _, ended := range r.servers.Leave() {
				r.err = errors.Join(r.err, <-ended)
			}
			close(r.left)
		}()
	})
	select {
	case <-r.left:
		return codes.Of(op, r.err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start fails if the Runner was shut down or a server does not answer.
func (r *Runner) Start(ctx context.Context) error {
	const op = "belugarunner.start"
	if r.closing.Err() != nil {
		return errShutDown(op)
	}
	err := r.locker.Ping(ctx)
	if err == nil && r.own != nil {
		_, err = r.own.locked.Ping(ctx)
	}
	return codes.Of(op, err)
}

// Stop is [Runner.Shutdown].
func (r *Runner) Stop(ctx context.Context) error { return r.Shutdown(ctx) }

// Health reports unhealthy if Start fails or takes more than 5 s.
func (r *Runner) Health() core.HealthStatus { return services.Health(r.Start) }

// Locker returns the Locker of the runs. Saves of memories over it are part of a run. Its Do with the
// [belugamemory.SessionKey] keeps runs of a session away.
func (r *Runner) Locker() *distlock.Locker { return r.locker }

// Sessions returns the sessions, to list a chat or to delete it: Options.SessionService, or
// that of this Runner. In the Runner's service, a session belongs to the tenant of the context, see
// [belugamemory.SessionKey]. Values of State and metadata keep their types as in [belugamemory.Codec].
//
// Update needs the lease of the session: call it under the Do of [Runner.Locker] with the
// [belugamemory.SessionKey]. It takes the session that Get or Create has returned under this lease, and
// refuses all others: another instance may have stored turns since. Nothing is merged. Create and Delete
// take the lock themselves. Get takes none.
//
// A session whose ExpiresAt is past is not found. The service keeps its text until Delete, until
// Create under the same ID, or until Options.IdleTTL.
func (r *Runner) Sessions() runtime.SessionService { return r.sessions }
