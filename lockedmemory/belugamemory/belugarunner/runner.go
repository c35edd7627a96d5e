package belugarunner

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/services"
)

var _ core.Lifecycle = (*Runner)(nil)

// Runner runs an agent over sessions that all instances share. The runs of a session follow each
// other, and every answer that a reader sees is stored. It is a core.Lifecycle, and safe for
// concurrent use.
type Runner struct {
	settings
	agent    agent.Agent
	run      func(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error]
	wrapped  runtime.SessionService
	sessions *SessionService
	servers  services.Servers

	leaving sync.Once
	left    chan struct{} // closed after the services were left
	err     error         // of leaving them
}

// New makes a Runner of Beluga for an agent, with sessions and locks on the server of a URL, see
// lockurl.OpenDriver. A PostgreSQL has the schemas of pglock.Migrate and pgstore.Migrate. New asks
// the servers once, and waits for each for at most 5 s. Call [Runner.Shutdown] when the process ends.
//
// The agent belongs to the Runner: New wraps it with [WrapAgent]. A session names its agent by ID. A
// run of an agent with another ID fails with core.ErrInvalidInput and changes nothing.
//
// Runners and memories "locked" of this process share the connections of a URL, and a Locker if the
// options of their locks are equal: namespace and TTL. Give such a memory neither "wait" nor "max_hold".
//
// Options are [WithStore], [WithNamespace], [WithTTL], [WithIdleTTL], [WithMaxTurns], [WithHistory],
// [WithWait], [WithBusy], [WithMaxHold], [WithPlugins] and [WithAgentID]. A nil agent, an agent without
// an ID, and wrong options fail with core.ErrInvalidInput. A server that refuses or does not answer
// fails with core.ErrProviderDown. Then nothing stays open.
func New(a agent.Agent, url string, opts ...Option) (*Runner, error) {
	r, err := open(a, url, opts)
	return r, codes.Of("belugarunner.new", err)
}

const newTimeout = 5 * time.Second

func open(a agent.Agent, url string, opts []Option) (*Runner, error) {
	s, err := apply(settings{runs: newOpenRuns(), tokens: defaultHistory}, opts, forRunners)
	if err != nil {
		return nil, err
	}
	if isNil(a) {
		return nil, codes.Invalid("the agent is nil: give the agent of the Runner")
	}
	if s.agentID = cmp.Or(s.agentID, a.ID()); s.agentID == "" {
		return nil, codes.Invalid("the agent has no ID, and sessions belong to an ID: set one with WithAgentID")
	}
	s.keep.Namespace = cmp.Or(s.keep.Namespace, "run")
	r := &Runner{settings: s, agent: WrapAgent(named{a, s.agentID}), left: make(chan struct{})}
	opened := false
	defer func() { // also after a panic
		if !opened {
			r.servers.Leave()
		}
	}()
	if err := r.connect(url); err != nil {
		return nil, err
	}
	r.wrapped = &sessions{r.sessions, r.settings}
	r.run = lockRun(&r.settings, r.turn)
	opened = true
	return r, nil
}

// connect opens the servers of the locks and the sessions.
func (r *Runner) connect(url string) (err error) {
	r.servers = services.Servers{LocksAt: services.Setting{Name: "url", URL: url},
		SessionsAt: services.Setting{Name: "WithStore", URL: r.storeURL}, Timeout: newTimeout}
	if r.locker, err = r.servers.Open(r.locks); err != nil {
		return err
	}
	kept, err := r.servers.Sessions.Sessions(r.keep, true)
	if err != nil {
		return err
	}
	if r.sessions, err = newSessionService(kept, r.settings); err != nil {
		return err
	}
	return r.servers.AskSessions(r.sessions.locked.Ping)
}

// named is an agent with the ID that New has read.
type named struct {
	agent.Agent
	id string
}

func (n named) ID() string { return n.id }

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

// Run waits for the session, and runs the agent on the input. It yields the events after the turn is
// stored, or one error, see [LockRun]. A session that does not exist is created with this ID. An empty
// ID fails with distlock.ErrInvalidKey. The tenant of ctx owns the session.
//
// The number of runs at the same time has no limit: let the server limit its requests. A run may
// contain a run of another session. If the other session's run contains one of this session, each
// waits for the other, for at most [WithWait].
//
// If ctx ends, Run returns. Its session is free as soon as the worker of Beluga has ended, and at the
// age of [WithMaxHold] at the latest. After [Runner.Shutdown], Run fails with
// belugamemory.ErrShuttingDown and distlock.ErrClosed.
func (r *Runner) Run(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error] {
	return r.run(ctx, sessionID, input)
}

type insideKey struct{ *Runner }

// turn is a run of Beluga under the lease. ⚑ Each run has a runtime.Runner of its own, whose Shutdown
// returns when the worker of this run has ended. Nothing else shows this end.
func (r *Runner) turn(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		own := runtime.NewRunner(r.agent, runtime.WithSessionService(r.wrapped),
			runtime.WithPlugins(append(slices.Clip(r.plugins), historyPlugin{r.tokens})...))
		runOf(ctx).work.begin() // of the worker
		defer r.awaitWorker(ctx, own)
		own.Run(context.WithValue(ctx, insideKey{r}, true), sessionID, input)(yield)
	}
}

// awaitWorker releases the lease of a cancelled run when its worker has ended.
func (r *Runner) awaitWorker(ctx context.Context, own *runtime.Runner) {
	run := runOf(ctx)
	if ctx.Err() == nil { // Run has returned after its worker
		run.workEnded(ctx, 1, false)
		return
	}
	r.runs.add(1)
	go func() {
		defer r.runs.add(-1)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.maxHold)
		defer cancel()
		if own.Shutdown(limited) == nil {
			run.workEnded(ctx, 1, false)
		}
	}()
}

// Shutdown refuses new runs and ends those that wait for their session: they fail with
// belugamemory.ErrShuttingDown, so that clients ask another instance. It waits for all others and their
// workers, then releases the leases and closes the connections, unless another Runner or memory uses
// them. Every Shutdown waits for that. If ctx ends first, Shutdown returns its error, and the work
// continues in the background. In the context of a run of this Runner it fails with
// core.ErrInvalidInput.
func (r *Runner) Shutdown(ctx context.Context) error {
	const op = "belugarunner.shutdown"
	if ctx.Value(insideKey{r}) != nil {
		return codes.Of(op, codes.Self(errors.New("a run of this Runner is around the call, and Shutdown waits for its end: "+
			"call it outside of runs"), distlock.BusyError{Self: true}))
	}
	r.runs.shutDown()
	r.leaving.Do(func() {
		go func() {
			<-r.runs.idle
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
	if r.runs.closing.Err() != nil {
		return errShutDown(op)
	}
	err := r.locker.Ping(ctx)
	if err == nil {
		_, err = r.sessions.locked.Ping(ctx)
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

// Sessions returns the sessions, to list a chat or to delete it. An Update needs the lease of its
// session, see [SessionService].
func (r *Runner) Sessions() *SessionService { return r.sessions }
