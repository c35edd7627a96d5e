package belugarunner_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// A cancelled run ends with its agent. A later Save or Update is refused.
func TestWrapAgent_L_endFreesACancelledRun(t *testing.T) {
	for name, agent := range map[string]func(*thinks) answers{
		"the agent fails":   func(a *thinks) answers { return a.fails },
		"the agent answers": func(a *thinks) answers { return a.agent },
	} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				slow := newThinks()
				a := p.with(t, agent(slow))
				a.wrap = belugarunner.WrapAgent
				ctx, cancel := context.WithCancel(t.Context())
				go func() { <-slow.begun; cancel() }()
				p.say(ctx, a, "q")
				time.Sleep(time.Minute)
				if p.free(t, a) {
					t.Fatal("the session is free while the agent is at work")
				}
				close(slow.goOn)
				time.Sleep(5 * time.Millisecond)
				if !p.free(t, a) || p.turns(t) != "" {
					t.Errorf("5 ms after the end of the agent the session is free: %t; turns %q", p.free(t, a), p.turns(t))
				}
			})
		})
	}
}

// The Update comes after the agent's end. If the run is cancelled in between, the Update is
// refused.
func TestWrapAgent_S1_endLeavesTheUpdate(t *testing.T) {
	for name, cancels := range map[string]bool{"not cancelled": false, "cancelled after the end": true} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				a := p.with(t, echo)
				a.wrap = belugarunner.WrapAgent
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a.after = func(ctx context.Context) {
					time.Sleep(time.Second)
					if p.free(t, a) {
						t.Error("the session is free before the Update")
					}
					if cancels {
						cancel()
						time.Sleep(5 * time.Millisecond)
						if !p.free(t, a) {
							t.Error("the session of the cancelled run is held after the end of its agent")
						}
					}
				}
				answer, errs := p.say(ctx, a, "q")
				a.workers.Wait()
				if got := p.turns(t); cancels == (got == "q") || cancels == (answer != "") || cancels != (len(errs) == 1) {
					t.Errorf("answer %q, errors %v, turns %q", answer, errs, got)
				}
			})
		})
	}
}

// The end of a wrapped child, even by a panic, does not end the agent.
func TestWrapAgent_S1_childEndsNothing(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, nil)
		a.wrap = belugarunner.WrapAgent
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a.agent = func(ctx context.Context, input string) (string, error) {
			cancel()
			func() {
				defer func() { recover() }()
				streamed(ctx, belugarunner.WrapAgent(answers(echo)), input)
				belugarunner.WrapAgent(answers(func(context.Context, string) (string, error) { panic("boom") })).Invoke(ctx, input)
			}()
			time.Sleep(time.Second)
			if p.free(t, a) {
				t.Error("the end of the child has freed the session")
			}
			return "", errAgent
		}
		p.say(ctx, a, "q")
		a.workers.Wait()
	})
}

// The first of two wrapped agents that work side by side ends nothing.
func TestWrapAgent_S1_lastAgentEndsTheRun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		a.agent = func(ctx context.Context, input string) (string, error) {
			cancel()
			var all sync.WaitGroup
			for n := range 2 {
				all.Go(func() {
					streamed(ctx, belugarunner.WrapAgent(answers(func(context.Context, string) (string, error) {
						time.Sleep(time.Duration(2*n+1) * time.Second)
						return "", nil
					})), input)
				})
			}
			all.Wait()
			return "", errAgent
		}
		p.say(ctx, a, "q")
		for after, want := range []bool{false, false, true} {
			if time.Sleep(5*time.Millisecond + time.Duration(after)*time.Second*4/3); p.free(t, a) != want {
				t.Errorf("look %d: the session is free: %t, want %t", after+1, !want, want)
			}
		}
	})
}

// The end of a cancelled run waits for a Save of a tool that outlives its agent.
func TestLockRun_S1_endWaitsForASave(t *testing.T) {
	for name, wrapped := range map[string]bool{"the end of the agent": true, "an Update that is refused": false} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				a, b := p.with(t, nil), p.with(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				a.agent = func(ctx context.Context, _ string) (string, error) {
					lease, _ := a.locker.FromContext(ctx, p.session)
					begun := make(chan struct{})
					go lease.Guard(ctx, func(context.Context) error { close(begun); time.Sleep(time.Second); return nil })
					<-begun
					cancel()
					if !wrapped {
						refusedWith(t, p.change(ctx, t, b.sessions), core.ErrInvalidInput, distlock.ErrNotHeld)
					}
					return "", errAgent
				}
				if wrapped {
					a.wrap = belugarunner.WrapAgent
				}
				p.say(ctx, a, "q")
				if time.Sleep(5 * time.Millisecond); p.free(t, a) {
					t.Error("the session is free while a Save of the cancelled run is under way")
				}
				if time.Sleep(time.Second); !p.free(t, a) {
					t.Error("the session is held after the Save")
				}
			})
		})
	}
}

// A worker of Beluga does not recover, so the release comes before the end of the process.
func TestWrapAgent_L_panicReleasesFirst(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		a := p.with(t, func(context.Context, string) (string, error) { panic("boom") })
		wrapped := belugarunner.WrapAgent(a.agent)
		run := func(ctx context.Context, _, input string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				defer func() {
					if recovered := recover(); recovered != "boom" || !p.free(t, a) {
						t.Errorf("the panic became %v; the session is free: %t, want it free", recovered, p.free(t, a))
					}
				}()
				streamed(ctx, wrapped, input)
			}
		}
		for _, err := range must2(belugarunner.LockRun(a.locker, run))(t.Context(), p.session, "q") {
			refusedWith(t, err, core.ErrInvalidInput, err) // the recovered run has no Update
		}
		if _, err := streamed(t.Context(), belugarunner.WrapAgent(answers(echo)), "q"); err != nil { // of no run
			t.Error(err)
		}
	})
}

// A run in a Turn or in a run uses the lease around it.
func TestWrapAgent_S1_innerRunEndsNothing(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, nil)
		a.wrap = belugarunner.WrapAgent
		must(t, a.locker.Do(t.Context(), p.session, func(ctx context.Context) error {
			inner, cancel := context.WithCancel(ctx)
			a.agent = func(ctx context.Context, input string) (string, error) { cancel(); return "", errAgent }
			p.say(inner, a, "q")
			a.workers.Wait()
			a.agent = echo
			return second(p.oneError(ctx, a, "q"))
		}))
		if got := p.turns(t); got != "q" {
			t.Errorf("turns %q", got)
		}
	})
}
