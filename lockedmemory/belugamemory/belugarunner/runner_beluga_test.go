//go:build beluga

// These tests use Beluga's own Runner and agents, which the contract lacks: make test-beluga.

package belugarunner_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// planner answers with the result of a function.
type planner func(ctx context.Context, input string) (string, error)

func (p planner) Plan(ctx context.Context, state agent.PlannerState) ([]agent.Action, error) {
	answer, err := p(ctx, state.Input)
	return []agent.Action{{Type: agent.ActionFinish, Message: answer}}, err
}

func (p planner) Replan(ctx context.Context, state agent.PlannerState) ([]agent.Action, error) {
	return p.Plan(ctx, state)
}

type runOf = func(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error]

// runner is a Runner of Beluga over the sessions of a place, and its locked Run.
func (p *place) runner(t *testing.T, answer planner, opts ...belugarunner.Option) (*runtime.Runner, runOf, *instance) {
	t.Helper()
	return p.runnerOf(t, agent.New("agent", agent.WithPlanner(answer)), opts...)
}

func (p *place) runnerOf(
	t *testing.T, own agent.Agent, opts ...belugarunner.Option,
) (*runtime.Runner, runOf, *instance) {
	t.Helper()
	i := &instance{locker: p.newLocker(t, distlock.Options{
		TTL: leaseTTL, Wait: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})}
	runner := runtime.NewRunner(own, runtime.WithSessionService(must2(belugarunner.WrapSessions(p.sessions, i.locker))))
	t.Cleanup(func() { drain(t, runner) })
	return runner, must2(belugarunner.LockRun(i.locker, runner.Run, opts...)), i
}

// drain waits until the Runner has no worker. The Runner then accepts no more runs.
func drain(t *testing.T, runner *runtime.Runner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := runner.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func (p *place) ask(ctx context.Context, run runOf, input string) (answer string, errs []error) {
	for event, err := range run(ctx, p.session, schema.NewHumanMessage(input)) {
		if err != nil {
			errs = append(errs, err)
		} else if event.Type == agent.EventText {
			answer += event.Text
		}
	}
	return answer, errs
}

// askAndCancel cancels a run while its agent is at work.
func (p *place) askAndCancel(t *testing.T, run runOf, a *thinks, input string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-a.begun
		cancel()
	}()
	if answer, errs := p.ask(ctx, run, input); answer != "" || len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Fatalf("the run that was cancelled: %q, %v", answer, errs)
	}
}

func TestRunner_S1_runsFollowEachOther(t *testing.T) {
	const runs = 8
	everywhere(t, func(t *testing.T, p *place) {
		answer := func(ctx context.Context, input string) (string, error) {
			time.Sleep(5 * time.Millisecond)
			return echo(ctx, input)
		}
		ask := func(run runOf, unlocked bool) {
			var all sync.WaitGroup
			other := run
			if !unlocked {
				_, other, _ = p.runner(t, answer)
			}
			for n := range runs {
				all.Go(func() {
					input := strconv.Itoa(n)
					answer, errs := p.ask(t.Context(), []runOf{run, other}[n%2], input)
					if answer != "answer to "+input || errs != nil {
						t.Errorf("run %d: %q, %v", n, answer, errs)
					}
				})
			}
			all.Wait()
		}
		_, run, _ := p.runner(t, answer)
		ask(run, false)
		if turns := strings.Fields(p.turns(t)); len(turns) != runs {
			t.Errorf("the turns %v, want %d", turns, runs)
		}
		// Without the lock, these runs would prove nothing.
		bare := runtime.NewRunner(agent.New("agent", agent.WithPlanner(planner(answer))),
			runtime.WithSessionService(p.sessions))
		defer drain(t, bare)
		ask(bare.Run, true)
		if turns := strings.Fields(p.turns(t)); len(turns) == 2*runs {
			t.Error("nothing is lost without the lock")
		}
	})
}

func TestRunner_S1_cancelled_nextWaitsForUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow := newThinks()
		_, a, _ := p.runner(t, slow.agent)
		_, b, _ := p.runner(t, echo)
		p.askAndCancel(t, a, slow, "first")
		next := make(chan []error)
		go func() {
			_, errs := p.ask(t.Context(), b, "second")
			next <- errs
		}()
		select {
		case errs := <-next:
			t.Fatalf("%v, while the worker of the run before is at work", errs)
		case <-time.After(2 * leaseTTL):
		}
		close(slow.goOn)
		if errs := <-next; errs != nil {
			t.Error(errs)
		}
		if got := p.turns(t); got != "first second" {
			t.Errorf("the turns %q", got)
		}
	})
}

// failing is a model that fails after it was cancelled and the test has released it.
func (a *thinks) failing(ctx context.Context, _ string) (string, error) {
	close(a.begun)
	<-ctx.Done()
	<-a.goOn
	return "", ctx.Err()
}

func TestRunner_L_agentFreesItsCancelledRun(t *testing.T) {
	own := func(slow *thinks) agent.Agent { return agent.New("agent", agent.WithPlanner(planner(slow.failing))) }
	for name, test := range map[string]struct {
		make  func(slow *thinks) agent.Agent
		takes time.Duration
	}{
		"wrapped": {func(slow *thinks) agent.Agent { return belugarunner.WrapAgent(own(slow)) }, 0},
		"a team": {func(slow *thinks) agent.Agent {
			return belugarunner.WrapAgent(runtime.NewTeam(runtime.WithAgents(belugarunner.WrapAgent(answers(echo)), own(slow))))
		}, 0},
		"a team at once": {func(slow *thinks) agent.Agent {
			return belugarunner.WrapAgent(runtime.NewTeam(runtime.WithAgents(belugarunner.WrapAgent(answers(echo)), own(slow)),
				runtime.WithPattern(runtime.ScatterGatherPattern(answers(echo)))))
		}, 0},
		"not wrapped": {own, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				slow, start := newThinks(), time.Now()
				_, run, a := p.runnerOf(t, test.make(slow))
				p.askAndCancel(t, run, slow, "q")
				time.Sleep(time.Minute)
				if p.free(t, a) {
					t.Fatal("the session is free while the agent is at work")
				}
				close(slow.goOn)
				if test.takes > 0 {
					time.Sleep(test.takes - time.Since(start) - time.Millisecond)
					if p.free(t, a) {
						t.Error("the session is free before MaxHold")
					}
				}
				time.Sleep(5 * time.Millisecond)
				if !p.free(t, a) {
					t.Error("the session is held")
				}
			})
		})
	}
}

// The client of a slow stream holds no session, and every answer that it sees is stored.
func TestRunner_updateEndsTheLease(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		_, run, a := p.runner(t, echo)
		for event, err := range run(t.Context(), p.session, schema.NewHumanMessage("q")) {
			if err != nil || !p.free(t, a) {
				t.Errorf("event %v, error %v; the session is free: %t", event, err, p.free(t, a))
			}
		}
		p.sessions.fails = errAgent
		if answer, errs := p.ask(t.Context(), run, "q"); answer != "" || len(errs) != 1 || !errors.Is(errs[0], errAgent) {
			t.Errorf("answer %q, errors %v", answer, errs)
		}
	})
}

func TestRunner_L_maxHold_refusesLateUpdate(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		runner, a, _ := p.runner(t, slow.agent, belugarunner.WithMaxHold(time.Minute))
		_, b, _ := p.runner(t, echo)
		p.askAndCancel(t, a, slow, "late")
		if _, errs := p.ask(t.Context(), b, "next"); errs != nil {
			t.Fatal(errs)
		}
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
		drain(t, runner)
		if got := p.turns(t); got != "next" {
			t.Errorf("the turns %q", got)
		}
	})
}

func TestRunner_N_lossCancelsTheRun(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		var cause error
		runner, run, _ := p.runner(t, func(ctx context.Context, input string) (string, error) {
			p.lose(t)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return echo(ctx, input)
		})
		_, errs := p.ask(t.Context(), run, "q")
		if len(errs) != 1 {
			t.Fatalf("%v, want one error", errs)
		}
		refusedWith(t, errs[0], belugamemory.ErrLockLost, distlock.ErrLost)
		drain(t, runner)
		if !errors.Is(cause, distlock.ErrLost) || p.turns(t) != "" {
			t.Errorf("cause %v, turns %q", cause, p.turns(t))
		}
	})
}

// For an unknown session the Runner creates a session with another ID. The Update of this session
// is part of the run.
func TestRunner_createdSession_isUpdated(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		updates := 0
		p.sessions.updated = func() { updates++ }
		_, run, a := p.runner(t, echo)
		p.session = "unknown"
		if answer, errs := p.ask(t.Context(), run, "q"); answer != "answer to q" || errs != nil || updates != 1 ||
			!p.free(t, a) {
			t.Errorf("%q, %v, %d Updates; the lock is free: %t", answer, errs, updates, p.free(t, a))
		}
	})
}

// A Runner of New frees the session of a cancelled run with the end of its worker, whatever the agent is.
func TestNew_L_agentsOfBeluga(t *testing.T) {
	own := func(slow *thinks) agent.Agent { return agent.New("own", agent.WithPlanner(planner(slow.failing))) }
	for name, test := range map[string]func(slow *thinks) agent.Agent{
		"an agent": own,
		"a team": func(slow *thinks) agent.Agent {
			return runtime.NewTeam(runtime.WithAgents(answers(echo), own(slow)))
		},
		"a team at once": func(slow *thinks) agent.Agent {
			return runtime.NewTeam(runtime.WithAgents(answers(echo), own(slow)), runtime.WithPattern(runtime.ScatterGatherPattern(answers(echo))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onMem(t, func(t *testing.T) {
				slow := newThinks()
				r := newRunner(t, test(slow), "mem://")
				ctx, cancel := context.WithCancel(t.Context())
				go func() { <-slow.begun; cancel() }()
				if _, errs := say(ctx, r, "s", "q"); len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
					t.Errorf("%v", errs)
				}
				time.AfterFunc(time.Minute, func() { close(slow.goOn) })
				start := time.Now()
				lease, err := r.Locker().Acquire(t.Context(), "s", distlock.WithWait(time.Hour))
				must(t, err)
				must(t, lease.Release(t.Context()))
				if took := time.Since(start); took != time.Minute {
					t.Errorf("the session is free after %s, and the agent ended after a minute", took)
				}
				if got := said(t, t.Context(), r, "s"); got != "" {
					t.Errorf("the turns %q", got)
				}
			})
		})
	}
}
