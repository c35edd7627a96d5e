package runtime

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"
)

// Plugin sees every turn of a Runner.
type Plugin interface {
	Name() string
	BeforeTurn(ctx context.Context, session *Session, input schema.Message) (schema.Message, error)
	AfterTurn(ctx context.Context, session *Session, events []agent.Event) ([]agent.Event, error)
	OnError(ctx context.Context, err error) error
}

// Runner runs an agent over sessions. Its workers do not recover.
type Runner struct {
	agent    agent.Agent
	sessions SessionService
	plugins  []Plugin
	slots    chan struct{}
	workers  sync.WaitGroup

	mu   sync.Mutex
	over bool
}

type RunnerOption func(*Runner)

// WithPlugins replaces the plugins of an earlier WithPlugins.
func WithPlugins(plugins ...Plugin) RunnerOption { return func(r *Runner) { r.plugins = plugins } }

func WithSessionService(s SessionService) RunnerOption { return func(r *Runner) { r.sessions = s } }

func NewRunner(a agent.Agent, opts ...RunnerOption) *Runner {
	r := &Runner{agent: a, slots: make(chan struct{}, 10)}
	for _, opt := range opts {
		opt(r)
	}
	if r.sessions == nil {
		r.sessions = NewInMemorySessionService()
	}
	return r
}

// Run yields the events of the turn after its Update. If ctx ends, it returns before its worker.
func (r *Runner) Run(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		r.mu.Lock()
		over := r.over
		r.mu.Unlock()
		if over {
			yield(agent.Event{}, core.NewError("runtime.runner.run", core.ErrInvalidInput, "the runner is shut down", nil))
			return
		}
		if err := ctx.Err(); err != nil {
			yield(agent.Event{}, err)
			return
		}
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			yield(agent.Event{}, core.NewError("runtime.runner.run", core.ErrInvalidInput, "no worker is free", ctx.Err()))
			return
		}
		var events []agent.Event
		var err error
		ended := make(chan struct{})
		r.workers.Go(func() {
			defer func() { <-r.slots }()
			events, err = r.turn(ctx, sessionID, input)
			close(ended)
		})
		select {
		case <-ctx.Done():
			yield(agent.Event{}, ctx.Err())
			return
		case <-ended:
		}
		if err != nil {
			yield(agent.Event{}, r.onError(ctx, err))
			return
		}
		for _, event := range events {
			if !yield(event, nil) {
				return
			}
		}
	}
}

// onError may return nil: then the run of an error yields an empty event.
func (r *Runner) onError(ctx context.Context, err error) error {
	for _, p := range r.plugins {
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		err = p.OnError(ctx, err)
	}
	return err
}

func (r *Runner) turn(ctx context.Context, sessionID string, input schema.Message) ([]agent.Event, error) {
	session, err := r.session(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	for _, p := range r.plugins {
		if err = ctx.Err(); err == nil {
			input, err = p.BeforeTurn(ctx, session, input)
		}
		if err != nil {
			return nil, core.NewError("runtime.runner.before", core.ErrInvalidInput, "a plugin failed before the turn", err)
		}
	}
	var events []agent.Event
	for event, err := range r.agent.Stream(ctx, firstText(input)) {
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	for _, p := range r.plugins {
		if err = ctx.Err(); err == nil {
			events, err = p.AfterTurn(ctx, session, events)
		}
		if err != nil {
			return nil, core.NewError("runtime.runner.after", core.ErrInvalidInput, "a plugin failed after the turn", err)
		}
	}
	answer := ""
	for _, event := range events {
		if event.Type == agent.EventText {
			answer += event.Text
		}
	}
	session.Turns = append(session.Turns, schema.Turn{Input: input, Output: schema.NewAIMessage(answer), Timestamp: time.Now().UTC()})
	if err := r.sessions.Update(ctx, session); err != nil {
		slog.WarnContext(ctx, "the session was not updated", "error", err)
	}
	return events, nil
}

func (r *Runner) session(ctx context.Context, sessionID string) (*Session, error) {
	if sessionID != "" {
		session, err := r.sessions.Get(ctx, sessionID)
		var known *core.Error
		if err == nil || !errors.As(err, &known) || known.Code != core.ErrNotFound {
			return session, err
		}
	}
	session, err := r.sessions.Create(ctx, r.agent.ID())
	if err != nil {
		err = core.NewError("runtime.runner.session", core.ErrInvalidInput, "no session was created", err)
	}
	return session, err
}

func firstText(message schema.Message) string {
	if message != nil {
		for _, part := range message.GetContent() {
			if text, ok := part.(schema.TextPart); ok {
				return text.Text
			}
		}
	}
	return ""
}

// Shutdown waits for the workers until ctx ends, for 30 s if ctx has no deadline.
func (r *Runner) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		ctx = limited
	}
	ended := make(chan struct{})
	go func() {
		r.workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
