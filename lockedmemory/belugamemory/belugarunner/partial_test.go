package belugarunner_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// emits is an agent that sends events.
type emits struct {
	answers
	send func(ctx context.Context, input string, yield func(agent.Event, error) bool)
}

func (e emits) Stream(ctx context.Context, input string, _ ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) { e.send(ctx, input, yield) }
}

func says(text string) agent.Event {
	return agent.Event{Type: agent.EventText, AgentID: "agent", Text: text}
}

// partly is an agent that sends a text and the call of a tool, and works on until its context ends, or until the
// test releases it, if it is deaf. Other inputs than "long" are answered at once.
func partly(deaf bool) (emits, *thinks) {
	slow := newThinks()
	return emits{send: func(ctx context.Context, input string, yield func(agent.Event, error) bool) {
		if !strings.HasPrefix(input, "long") {
			yield(says("answer to "+input), nil)
			return
		}
		select {
		case <-slow.begun:
			yield(says("answered again"), nil)
			return
		default:
		}
		yield(says("one "), nil)
		yield(toolEvent(agent.EventToolCall, "agent", "7", nil), nil)
		close(slow.begun)
		if deaf {
			<-slow.goOn
			for range 3 { // as an agent of Beluga, which sends events whatever yield returns
				yield(says("late"), nil)
			}
			return
		}
		<-ctx.Done()
		yield(agent.Event{}, ctx.Err())
	}}, slow
}

// both runs a test with an agent that heeds its context, and with one that does not.
func both(t *testing.T, test func(t *testing.T, deaf bool)) {
	for name, deaf := range map[string]bool{"heeds": false, "deaf": true} {
		t.Run(name, func(t *testing.T) { test(t, deaf) })
	}
}

const (
	partial = "text:one tool_call:7 done:one (stopped)"
	kept    = "tool_call:7 tool_result:stopped text:one done:one (stopped)"
)

// outcome is that of a run in the background.
type outcome struct {
	text string
	err  error
}

func begins(t testing.TB, r *belugarunner.Runner, session string, input schema.Message) chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		text, err := told(t.Context(), r, session, input)
		ended <- outcome{text, err}
	}()
	return ended
}

func (o outcome) is(t testing.TB, want string) {
	t.Helper()
	if strings.Join(strings.Fields(o.text), " ") != strings.Join(strings.Fields(want), " ") || o.err != nil {
		t.Errorf("the run yields %q, %v; want %q", o.text, o.err, want)
	}
}

// interrupted checks that the run has stored nothing, and is not repeated for a lost lease.
func (o outcome) interrupted(t testing.TB) {
	t.Helper()
	coded := new(core.Error)
	if !errors.As(o.err, &coded) || coded.Code != belugamemory.ErrInterrupted || belugamemory.Retryable(o.err) ||
		!errors.Is(o.err, distlock.ErrInterrupted) && !errors.Is(o.err, lockedmemory.ErrStopped) {
		t.Errorf("%q, %v", o.text, o.err)
	}
}

// A stopped run stores its events so far, with pairs of calls and results, also if its agent ignores the stop. Its
// message is answered with them. Without KeepPartial, or a grace, or an event, nothing is stored.
func TestStop_O_partialAnswer(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		both(t, func(t *testing.T, deaf bool) {
			for name, test := range map[string]struct {
				keeps, stored bool
				id            any
				grace         time.Duration
			}{
				"kept":           {keeps: true, stored: true, id: "1", grace: 5 * time.Second},
				"without an ID":  {keeps: true, stored: true, grace: 5 * time.Second},
				"without a mark": {id: "1", grace: 5 * time.Second},
				"no grace":       {keeps: true, id: "1"},
			} {
				t.Run(name, func(t *testing.T) {
					session := fmt.Sprint(t.Name())
					agent, slow := partly(deaf)
					a := newRunner(t, agent, url, belugarunner.Options{Interruptible: true, KeepPartial: test.keeps})
					b := newRunner(t, agent, url, belugarunner.Options{TTL: time.Minute}) // not the Locker
					var message schema.Message = schema.NewHumanMessage("long")
					if test.id != nil {
						message = named(test.id, "long")
					}
					talk(t, a, session, "before")
					ended := begins(t, a, session, message)
					<-slow.begun
					began := time.Now()
					must(t, b.StopSession(t.Context(), session, test.grace))
					if took := time.Since(began); took > 4*time.Second {
						t.Errorf("StopSession took %s", took)
					}
					got, want := <-ended, "before"
					stored := test.stored || test.keeps && got.err == nil // before the store knew of the stop
					if stored {
						got.is(t, partial)
						want = "before long"
					} else {
						got.interrupted(t)
					}
					said(t, b, session, want)
					close(slow.goOn)
					a.AwaitWorkers()
					talk(t, a, session, "after")
					said(t, b, session, want+" after")
					if test.id == nil {
						return
					}
					again := <-begins(t, b, session, message)
					if stored {
						again.is(t, kept)
						turn := must2(b.Sessions().Get(t.Context(), session)).Turns[1]
						if turn.Metadata[belugarunner.Stopped] != true {
							t.Errorf("the metadata is %v", turn.Metadata)
						}
					} else if !errors.Is(again.err, lockedmemory.ErrStopped) {
						t.Errorf("the redelivery: %q, %v", again.text, again.err)
					}
				})
			}
		})
	})
}

// newKeeper makes a Runner that keeps the events of stopped runs.
func newKeeper(t *testing.T, a agent.Agent, opts belugarunner.Options) *belugarunner.Runner {
	t.Helper()
	opts.Interruptible, opts.KeepPartial = true, true
	return newRunner(t, a, "mem://", opts)
}

// A run that has sent nothing stores nothing.
func TestStop_O_beforeTheFirstEvent(t *testing.T) {
	both(t, func(t *testing.T, deaf bool) {
		synctest.Test(t, func(t *testing.T) {
			slow := newThinks()
			a := emits{send: func(ctx context.Context, _ string, yield func(agent.Event, error) bool) {
				close(slow.begun)
				if !deaf {
					<-ctx.Done()
					return
				}
				time.Sleep(time.Minute)
				yield(says("late"), nil)
			}}
			r := newKeeper(t, a, belugarunner.Options{})
			ended := begins(t, r, "s", named("1", "q"))
			<-slow.begun
			must(t, r.StopSession(t.Context(), "s", time.Second))
			if got := <-ended; deaf || got.err != nil { // one that returns has answered with nothing
				got.interrupted(t)
				said(t, r, "s", "")
			}
			time.Sleep(time.Minute)
		})
	})
}

// The plugins see the events of a stopped run, and a guard changes what is stored. A stop that comes after the
// agent changes nothing, and one that a plugin outlasts refuses the turn.
func TestStop_O_plugins(t *testing.T) {
	for name, test := range map[string]struct {
		input  string
		takes  time.Duration // of AfterTurn
		stored string
		yields string
	}{
		"a guard":         {"long", 0, "long", "text:*** tool_call:7 done:one (stopped)"},
		"after the agent": {"q", time.Second, "q", "text:***"},
		"in the last TTL": {"long", 8 * time.Second, "long", "text:*** tool_call:7 done:one (stopped)"},
		"too late":        {"long", 20 * time.Second, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, slow := partly(true)
				begun := make(chan struct{})
				guard := &hooks{after: func(_ context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
					close(begun)
					time.Sleep(test.takes)
					events[0].Text = "***"
					return events, nil
				}}
				r := newKeeper(t, a, belugarunner.Options{TTL: 10 * time.Second, Plugins: []runtime.Plugin{guard}})
				ended := begins(t, r, "s", schema.NewHumanMessage(test.input))
				if test.input == "q" {
					<-begun
				} else {
					<-slow.begun
					time.Sleep(3 * time.Second) // no renewal is due
				}
				must(t, r.StopSession(t.Context(), "s", 9*time.Second))
				if got := <-ended; test.stored == "" {
					got.interrupted(t)
				} else {
					got.is(t, test.yields)
				}
				close(slow.goOn)
				r.AwaitWorkers()
				said(t, r, "s", test.stored)
				if session := must2(r.Sessions().Get(t.Context(), "s")); test.stored != "" &&
					(session.Turns[0].Output.(*schema.AIMessage).Text() != "***" || (session.Turns[0].Metadata[belugarunner.Stopped] == true) != (test.input == "long")) {
					t.Errorf("%+v", session.Turns[0])
				}
			})
		})
	}
}

// An agent of Beluga is stopped in a tool, which heeds its context or not. The next request to its model has the
// call, and a result.
func TestStop_O_inATool(t *testing.T) {
	both(t, func(t *testing.T, deaf bool) {
		synctest.Test(t, func(t *testing.T) {
			slow, m := newThinks(), &asked{}
			order := tool.NewFuncTool("order", "an order", func(ctx context.Context, _ struct{}) (*tool.Result, error) {
				close(slow.begun)
				if deaf {
					<-slow.goOn
					return tool.TextResult("late"), nil
				}
				<-ctx.Done()
				return nil, ctx.Err()
			})
			r := newKeeper(t, agent.New("agent", agent.WithLLM(belugarunner.History(m)), agent.WithTools([]tool.Tool{order})), belugarunner.Options{})
			ended := begins(t, r, "s", named("1", "my order?"))
			<-slow.begun
			must(t, r.StopSession(t.Context(), "s", time.Second))
			const call = `tool_call:1order{"id":"7"}`
			(<-ended).is(t, call+" done:(stopped)")
			tells(t, r, "s", named("1", "my order?"), call+" tool_result:stopped done:(stopped)")
			close(slow.goOn)
			r.AwaitWorkers()
			talk(t, r, "s", "bye")
			m.got(t, `human my order?|ai [{1 order {"id":"7"}}]|tool stopped|human bye`)
		})
	})
}

// A stop ends a tool that works under the lease. Its agent may fail before the run knows of the stop.
func TestStop_O_failingTool(t *testing.T) {
	t.Parallel()
	var r *belugarunner.Runner
	begun, large := make(chan struct{}), map[string]any{}
	for n := range 20_000 { // a copy takes long enough for the agent to wait for the run
		large[fmt.Sprint(n)] = n
	}
	r = newKeeper(t, emits{send: func(ctx context.Context, input string, yield func(agent.Event, error) bool) {
		lease, _ := r.Locker().FromContext(ctx, input)
		yield(says("one "), nil)
		begun <- struct{}{}
		for lease.Context().Err() == nil { // so that the run sees the stop and the error at once
			yield(agent.Event{Metadata: large}, nil)
		}
		yield(agent.Event{}, errAgent)
	}}, belugarunner.Options{Namespace: t.Name(), Stream: true})
	for n := range 20 {
		session := fmt.Sprint(n)
		ended := begins(t, r, session, schema.NewHumanMessage(session))
		<-begun
		must(t, r.StopSession(t.Context(), session, 5*time.Second))
		if got := <-ended; got.err != nil || !strings.HasSuffix(got.text, "done:one (stopped)") {
			t.Fatalf("%.50q, %v", got.text, got.err)
		}
	}
}

// The stop of a run does not store the events of a run of another session inside.
func TestStop_O_insideAnotherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inside, slow := partly(false)
		var r *belugarunner.Runner
		outer := emits{send: func(ctx context.Context, input string, yield func(agent.Event, error) bool) {
			if input != "outer" {
				inside.send(ctx, input, yield)
				return
			}
			yield(says("one "), nil)
			_, err := told(ctx, r, "inner", schema.NewHumanMessage("long"))
			yield(agent.Event{}, err)
		}}
		r = newKeeper(t, outer, belugarunner.Options{})
		ended := begins(t, r, "s", schema.NewHumanMessage("outer"))
		<-slow.begun
		must(t, r.StopSession(t.Context(), "s", time.Second))
		(<-ended).is(t, "text:one done:one (stopped)")
		r.AwaitWorkers()
		said(t, r, "s", "outer")
		said(t, r, "inner", "")
	})
}

// A caller that leaves ends its run, and nothing is stored, also if a stop comes later.
func TestStop_O_afterTheCallerHasLeft(t *testing.T) {
	both(t, func(t *testing.T, deaf bool) {
		synctest.Test(t, func(t *testing.T) {
			a, slow := partly(deaf)
			r := newKeeper(t, a, belugarunner.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := told(ctx, r, "s", schema.NewHumanMessage("long")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			must(t, r.StopSession(t.Context(), "s", time.Second))
			close(slow.goOn)
			r.AwaitWorkers()
			said(t, r, "s", "")
		})
	})
}

// A run whose caller has a deadline keeps its session until its agent has ended.
func TestStop_S1_deadlineOfTheCaller_nextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, slow := partly(true)
		r := newKeeper(t, a, belugarunner.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := told(ctx, r, "s", schema.NewHumanMessage("long")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		time.AfterFunc(time.Minute, func() { close(slow.goOn) })
		if after := freeAfter(t, r, "s"); after != time.Minute {
			t.Errorf("the session is free after %s, and the agent ends after 1 min", after)
		}
		r.AwaitWorkers()
		said(t, r, "s", "")
	})
}

// A lease that is lost ends a run that would keep its events.
func TestStop_N_lossIsNoStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, slow := partly(false)
		r := newKeeper(t, a, belugarunner.Options{})
		ended := begins(t, r, "s", schema.NewHumanMessage("long"))
		<-slow.begun
		lose(t, r.Locker(), "s")
		if got := <-ended; !errors.Is(got.err, distlock.ErrLost) {
			t.Errorf("%q, %v", got.text, got.err)
		}
		r.AwaitWorkers()
		said(t, r, "s", "")
	})
}

// Shutdown waits for an agent that a stop has cut, until MaxHold.
func TestStop_shutdownWaitsForTheAgent(t *testing.T) {
	for hold, waits := range map[time.Duration]time.Duration{time.Hour: time.Minute, 30 * time.Second: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a, slow := partly(true)
			r := newKeeper(t, a, belugarunner.Options{MaxHold: hold})
			began := time.Now()
			ended := begins(t, r, "s", schema.NewHumanMessage("long"))
			<-slow.begun
			time.AfterFunc(time.Minute, func() { close(slow.goOn) })
			must(t, r.StopSession(t.Context(), "s", time.Second))
			(<-ended).is(t, partial)
			talk(t, r, "s", "next")
			if err := r.Shutdown(t.Context()); err != nil || time.Since(began) != waits {
				t.Errorf("Shutdown has ended after %s, %v; want %s", time.Since(began), err, waits)
			}
			time.Sleep(time.Minute)
		})
	}
}

// StopMessage stops a message that runs, waits or comes later, and says whether an answer is stored.
func TestStopMessage_O(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		a, slow := partly(true)
		r := newRunner(t, a, url, belugarunner.Options{Interruptible: true, KeepPartial: true})
		b := newRunner(t, a, url, belugarunner.Options{TTL: time.Minute})
		stops := func(id string, want bool) {
			t.Helper()
			if stored, err := b.StopMessage(t.Context(), "s", id, 5*time.Second); stored != want || err != nil {
				t.Errorf("StopMessage of %s: %t, %v; want %t", id, stored, err, want)
			}
		}
		runs := begins(t, r, "s", named("runs", "long"))
		<-slow.begun
		waiting := begins(t, b, "s", named("waits", "q"))
		waits(t, b, "s")
		stops("waits", false)
		stops("later", false)
		stops("runs", true)
		(<-runs).is(t, partial)
		for _, got := range []outcome{<-waiting, <-begins(t, r, "s", named("later", "q"))} {
			if !errors.Is(got.err, lockedmemory.ErrStopped) {
				t.Errorf("%q, %v", got.text, got.err)
			}
		}
		tells(t, r, "s", named("done", "q"), "text:answer to q")
		stops("done", true)
		said(t, b, "s", "long q")
		close(slow.goOn)
	})
}

func TestStopMessage_refusesWrongInput(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(echo)
		if _, err := a.StopMessage(t.Context(), p.session, "1", 0); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
		refusedWith(t, second(a.StopMessage(t.Context(), "", "1", 0)), core.ErrInvalidInput, distlock.ErrInvalidKey)
		refusedWith(t, second(a.StopMessage(t.Context(), p.session, "", 0)), core.ErrInvalidInput, lockedmemory.ErrInvalidID)
	})
}

// The newest message interrupts the run, which stores its events so far within the grace, or nothing.
func TestInterrupt_O_newestMessage(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		both(t, func(t *testing.T, deaf bool) {
			for _, keeps := range []bool{true, false} {
				session := fmt.Sprint(t.Name(), keeps)
				a, slow := partly(deaf)
				opts := belugarunner.Options{Interruptible: true, KeepPartial: keeps, Busy: lockedmemory.Interrupt, Grace: 2 * time.Second}
				r := newRunner(t, a, url, opts)
				opts.TTL = time.Minute
				b := newRunner(t, a, url, opts)
				ended := begins(t, r, session, named("1", "long"))
				<-slow.begun
				tells(t, b, session, named("2", "q"), "text:answer to q")
				got, again := <-ended, <-begins(t, b, session, named("1", "long"))
				if keeps {
					got.is(t, partial)
					again.is(t, kept)
					said(t, b, session, "long q")
				} else {
					got.interrupted(t)
					switch superseded := errors.Is(again.err, lockedmemory.ErrSuperseded); {
					case superseded:
						said(t, b, session, "q")
					case again.err != nil || errors.Is(got.err, lockedmemory.ErrStopped): // with ErrInterrupted, it is open
						t.Errorf("%v, and the redelivery: %q, %v", got.err, again.text, again.err)
					}
				}
				close(slow.goOn)
			}
		})
	})
}

// A Delete does not interrupt a run.
func TestInterrupt_deleteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, slow := partly(true)
		r := newKeeper(t, a, belugarunner.Options{Busy: lockedmemory.Interrupt, Grace: time.Second})
		var all sync.WaitGroup
		all.Go(func() {
			(<-begins(t, r, "s", schema.NewHumanMessage("long"))).is(t, "text:one tool_call:7 text:late text:late text:late")
		})
		<-slow.begun
		all.Go(func() { must(t, r.Sessions().Delete(t.Context(), "s")) })
		time.Sleep(time.Minute)
		close(slow.goOn)
		all.Wait()
		said(t, r, "s", "no session")
	})
}
