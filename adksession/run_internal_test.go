package adksession

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

var evals = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

func TestRun_roundTrips(t *testing.T) {
	server := servers.StartRedis(t)
	for name, on := range map[string]any{"redis": server, "postgres": database(t)} {
		t.Run(name, func(t *testing.T) {
			count := func() int { return int(statements.Load()) }
			if name == "redis" {
				count = func() int {
					text, err := server.Do("INFO", "commandstats")
					must(t, err)
					n, err := strconv.Atoi(evals.FindStringSubmatch(text)[1])
					must(t, err)
					return n
				}
			}
			newRig(t, on).roundTrips(t, count)
		})
	}
}

// roundTrips checks how many round trips calls take. count is those so far.
func (r *rig) roundTrips(t *testing.T, count func() int) {
	r.id.app = "agent" // as adkrest names it
	look := toolOf(t, functiontool.Config{}, func(agent.Context) {})
	by := r.runner(t, callsOnce, look)
	rest := r.rest(t, callsOnce, look)
	outside := r.create(t)
	whole := func() {
		if texts, errs := r.run(t.Context(), by, asks("q")); len(errs) > 0 || len(texts) != 3 {
			t.Errorf("%q, %v", texts, errs)
		}
	}
	appends := func() { must(t, r.Append(t.Context(), r.id.app, r.id.user, r.id.name, event("x"))) }
	for name, c := range map[string]struct {
		fn   func()
		want int
	}{
		"a run with one tool call": {whole, 7},
		"the run by REST": {func() {
			if code, text := r.post(t, rest, "/run", r.body("q")); code != http.StatusOK {
				t.Errorf("%d %s", code, text)
			}
		}, 8},
		"an append without a lease": {func() {
			outside = r.must(t, t.Context())
			must(t, r.AppendEvent(t.Context(), outside, event("x")))
		}, 1 + 3},
		"Append": {appends, 4},
		"Append in a lease": {func() {
			r.under(t, func(ctx context.Context) { must(t, r.Append(ctx, r.id.app, r.id.user, r.id.name, event("x"))) })
		}, 2 + 2},
		"List": {func() { _, err := r.List(t.Context(), &session.ListRequest{AppName: r.id.app}); must(t, err) }, 1},
		"Create and Delete": {func() {
			other := *r
			other.id.name = "other"
			other.create(t)
			must(t, other.delete(t.Context()))
		}, 2},
	} {
		c.fn() // Redis learns the scripts
		before := count()
		c.fn()
		if n := count() - before; n != c.want {
			t.Errorf("%s takes %d round trips, want %d", name, n, c.want)
		}
	}
}

// A break and a panic release the lock. The stored events stay.
func TestRun_breakAndPanic(t *testing.T) {
	r := newRig(t)
	r.create(t)
	by := r.runner(t, callsOnce, toolOf(t, functiontool.Config{}, func(agent.Context) {}))
	for range by.Run(t.Context(), r.id.user, r.id.name, asks("q"), agent.RunConfig{}) {
		break
	}
	func() {
		defer func() { _ = recover() }()
		for range by.Run(t.Context(), r.id.user, r.id.name, asks("q"), agent.RunConfig{}) {
			panic("of the caller")
		}
	}()
	if texts, errs := r.run(t.Context(), by, asks("q")); len(errs) > 0 || len(texts) == 0 {
		t.Errorf("after them: %q, %v", texts, errs)
	}
}

// An iteration that is not continued keeps the lock.
func TestRun_pull(t *testing.T) {
	r := newRig(t, Options{Busy: lockedmemory.Refuse})
	r.create(t)
	by := r.runner(t, func(context.Context, *model.LLMRequest) *genai.Content { return says("a") })
	next, stop := iter.Pull2(by.Run(t.Context(), r.id.user, r.id.name, asks("q"), agent.RunConfig{}))
	if _, err, ok := next(); err != nil || !ok {
		t.Fatalf("the first event: %v", err)
	}
	_, errs := r.run(t.Context(), by, asks("other"))
	wantError(t, "the other run", errors.Join(errs...), distlock.ErrNotAcquired)
	stop()
	_, errs = r.run(t.Context(), by, asks("other"))
	must(t, errors.Join(errs...))
}

// MaxHold ends a run whose iteration stands still. The next run has the lock, and the old one appends
// nothing.
func TestRun_pull_maxHold(t *testing.T) {
	r, other := newRig(t, distlock.Options{TTL: 2 * time.Second, MaxHold: time.Millisecond}), newRig(t, Options{Wait: 15 * time.Second})
	r.create(t)
	deaf, err := agent.New(agent.Config{Name: "deaf", Run: func(agent.InvocationContext) iter.Seq2[*session.Event, error] {
		return func(yield func(*session.Event, error) bool) {
			_ = yield(event("1"), nil) && yield(event("2"), nil)
		}
	}})
	must(t, err)
	by, err := r.NewRunner(runner.Config{AppName: r.id.app, Agent: deaf})
	must(t, err)
	next, stop := iter.Pull2(by.Run(t.Context(), r.id.user, r.id.name, asks("q"), agent.RunConfig{}))
	defer stop()
	if e, err, _ := next(); err != nil || textOf(e) != "1" {
		t.Fatalf("the first event: %v, %v", e, err)
	}
	_, errs := other.run(t.Context(), other.runner(t, func(context.Context, *model.LLMRequest) *genai.Content { return says("a") }), asks("other"))
	must(t, errors.Join(errs...))
	_, err, _ = next()
	wantError(t, "the next event of the old run", err, distlock.ErrLost)
	r.wantHistory(t, "q", "1", "other", "a")
}

// A run inside a run of the session would wait for itself. One of another session may.
func TestRun_nested(t *testing.T) {
	r := newRig(t)
	r.create(t)
	other := *r
	other.id.name = "other"
	other.create(t)
	plain := r.runner(t, func(context.Context, *model.LLMRequest) *genai.Content { return says("inner") })
	var ended context.Context
	by := r.runner(t, callsOnce, toolOf(t, functiontool.Config{}, func(ctx agent.Context) {
		ended = context.WithoutCancel(ctx)
		_, errs := r.run(ctx, plain, asks("nested"))
		var busy *distlock.BusyError
		if err := errors.Join(errs...); !errors.As(err, &busy) || !busy.Self || !errors.Is(err, errInside) {
			t.Errorf("the run inside: %v", errs)
		}
		_, errs = other.run(ctx, plain, asks("nested"))
		must(t, errors.Join(errs...))
		// The tool's own append belongs to the run.
		must(t, r.Append(ctx, r.id.app, r.id.user, r.id.name, event("by the tool")))
	}))
	_, errs := r.run(t.Context(), by, asks("q"))
	must(t, errors.Join(errs...))
	r.wantHistory(t, "q", "", "by the tool", "", "done")
	_, errs = r.run(ended, plain, asks("late"))
	wantError(t, "a run with the context of an ended one", errors.Join(errs...), distlock.ErrNotHeld)
}

// An agent that ends silently when its context does, or with an error of its own, shows no whole answer. The
// error names a Stop, also if the lease ends before the agent.
func TestRun_cut(t *testing.T) {
	cutOff := errors.New("cut off")
	for name, c := range map[string][]error{ // that of the agent, and the ends of the lease
		"silent": {nil, distlock.ErrInterrupted}, "error": {cutOff, distlock.ErrInterrupted}, "closed": {cutOff, distlock.ErrClosed},
		"both ends": {cutOff, distlock.ErrInterrupted, distlock.ErrLost}, "both, silent": {nil, distlock.ErrInterrupted, distlock.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2*time.Second)
			r.create(t)
			cut := map[error]func(context.Context) error{distlock.ErrClosed: r.locker.Close,
				distlock.ErrLost:        func(context.Context) error { time.Sleep(2 * time.Second); return nil },
				distlock.ErrInterrupted: func(ctx context.Context) error { _, err := r.locker.Interrupt(ctx, r.id.key()); return err }}
			deaf, err := agent.New(agent.Config{Name: "deaf", Run: func(ctx agent.InvocationContext) iter.Seq2[*session.Event, error] {
				return func(yield func(*session.Event, error) bool) {
					for _, end := range c[1:] {
						must(t, cut[end](context.WithoutCancel(ctx)))
						<-ctx.Done()
					}
					if c[0] != nil {
						yield(nil, c[0])
					}
				}
			}})
			must(t, err)
			by, err := r.NewRunner(runner.Config{AppName: r.id.app, Agent: deaf})
			must(t, err)
			_, errs := r.run(t.Context(), by, asks("q"))
			for _, want := range c {
				if len(errs) != 1 || want != nil && !errors.Is(errs[0], want) || errs[0].Error() != public(c[1]).Error() {
					t.Errorf("%v, want %v", errs, want)
				}
			}
		})
	}
}

// ADK creates a session after a Get that failed, with AutoCreateSession.
func TestRun_autoCreate(t *testing.T) {
	r := newRig(t)
	by, err := r.NewRunner(runner.Config{AppName: r.id.app, AutoCreateSession: true, SessionService: r.Service,
		Agent: agentOf(t, func(context.Context, *model.LLMRequest) *genai.Content { return says("a") })})
	must(t, err)
	_, errs := r.run(t.Context(), by, asks("q"))
	must(t, errors.Join(errs...))
	r.wantHistory(t, "q", "a")
	r.id.name = ""
	_, errs = r.run(t.Context(), by, asks("q"))
	wantError(t, "a run without a session ID", errors.Join(errs...), distlock.ErrInvalidKey)
	_, err = r.NewRunner(runner.Config{SessionService: session.InMemoryService()})
	wantError(t, "another service", err, distlock.ErrInvalidOption)
}

// One confirmation that is sent three times runs the tool once.
func TestConfirmation_thrice(t *testing.T) {
	r := newRig(t)
	r.create(t)
	ran := 0
	by := r.runner(t, callsOnce, toolOf(t, functiontool.Config{RequireConfirmation: true}, func(agent.Context) { ran++ }))
	_, errs := r.run(t.Context(), by, asks("q"))
	must(t, errors.Join(errs...))
	var answer *genai.Content
	for e := range r.must(t, t.Context()).Events().All() {
		for _, p := range parts(e) {
			if p.FunctionCall != nil && p.FunctionCall.Name == toolconfirmation.FunctionCallName {
				answer = &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{
					ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Response: map[string]any{"confirmed": true}}}}}
			}
		}
	}
	_, errs = r.run(t.Context(), by, answer)
	must(t, errors.Join(errs...))
	_, errs = r.run(t.Context(), by, answer)
	wantError(t, "the second answer", errors.Join(errs...), ErrAnswered)
	e := event("")
	e.Content = answer
	wantError(t, "the third answer", r.Append(t.Context(), r.id.app, r.id.user, r.id.name, e), ErrAnswered)
	if ran != 1 {
		t.Errorf("the tool ran %d times", ran)
	}
}

// Each of the conditions counts.
func TestConfirmation_conditions(t *testing.T) {
	of := func(author string, p *genai.Part) *session.Event {
		return &session.Event{Author: author, LLMResponse: model.LLMResponse{Content: &genai.Content{Parts: []*genai.Part{{Text: "x"}, p}}}}
	}
	response := func(author, id, name string) *session.Event {
		return of(author, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: name}})
	}
	call := of("agent", &genai.Part{FunctionCall: &genai.FunctionCall{ID: "c", Name: toolconfirmation.FunctionCallName,
		Args: map[string]any{"originalFunctionCall": map[string]any{"id": "w", "name": "look"}}}})
	before := of("agent", &genai.Part{FunctionCall: &genai.FunctionCall{ID: "b", Name: toolconfirmation.FunctionCallName,
		Args: map[string]any{"originalFunctionCall": map[string]any{"id": "w", "name": "look"}}}})
	answer := response("user", "c", toolconfirmation.FunctionCallName)
	result := response("agent", "w", "look")
	for name, c := range map[string]struct {
		history []*session.Event
		want    bool
	}{
		"the tool has run":             {[]*session.Event{result, call, answer, result}, true},
		"the first response":           {[]*session.Event{result, call}, false},
		"no response after the answer": {[]*session.Event{result, call, answer}, false},
		"a response before the answer": {[]*session.Event{call, result, answer}, false},
		"a response to another call":   {[]*session.Event{call, answer, response("agent", "v", "look")}, false},
		"an answer to another":         {[]*session.Event{call, response("user", "d", toolconfirmation.FunctionCallName), result}, false},
		"not of the user":              {[]*session.Event{call, response("agent", "c", toolconfirmation.FunctionCallName), result}, false},
		"the call is not in the list":  {[]*session.Event{answer, result}, false},
		"an answer to one before":      {[]*session.Event{before, response("user", "b", toolconfirmation.FunctionCallName), result, call}, false},
	} {
		if got := answered(c.history, answer); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if answered(c.history, response("user", "c", "look")) || answered(c.history, response("agent", "c", toolconfirmation.FunctionCallName)) {
			t.Errorf("%s: another event counts as an answer", name)
		}
	}
}
