package belugarunner_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/memory/stores/inmemory"

	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// The worker of a cancelled run keeps the session until its end.
func TestRun_S1_cancelled_nextWaitsForTheWorker(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a, b := p.with(slow.agent), p.with(echo)
		p.cancelled(a, slow, "first")
		next := make(chan struct{})
		go func() {
			p.talk(b, "second")
			close(next)
		}()
		select {
		case <-next:
			t.Fatal("the next run ends while the worker of the run before is at work")
		case <-time.After(2 * leaseTTL): // it is renewed
		}
		close(slow.goOn)
		<-next
		p.turns("second")
	})
}

// MaxHold and Close end the lease of a cancelled run, whose worker then stores nothing.
func TestMaxHold_L_refusesLateUpdate(t *testing.T) {
	for name, after := range map[string]time.Duration{"MaxHold": 5 * time.Minute, "Close": 0} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				slow := newThinks()
				a, b := p.with(slow.agent, belugarunner.Options{MaxHold: 5 * time.Minute}), p.with(echo, belugarunner.Options{Wait: -1})
				start := time.Now()
				p.cancelled(a, slow, "late")
				var next sync.WaitGroup
				next.Go(func() { p.talk(b, "next") })
				if synctest.Wait(); name == "Close" {
					closeLocker(t, a.locker)
				}
				next.Wait()
				if took := time.Since(start); took != after {
					t.Errorf("the next run began after %s, want %s", took, after)
				}
				p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
				close(slow.goOn)
				a.AwaitWorkers()
				p.turns("next")
			})
		})
	}
}

// If a run is older than MaxHold when it is cancelled, its lease ends at once.
func TestMaxHold_L_countsFromTheGrant(t *testing.T) {
	for name, opts := range map[string]belugarunner.Options{"": {MaxHold: time.Hour}, "default": {}} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				slow := newThinks()
				a := p.with(func(ctx context.Context, input string) (string, error) {
					time.Sleep(opts.MaxHold)
					return slow.agent(ctx, input)
				}, opts)
				p.cancelled(a, slow, "q")
				if opts.MaxHold == 0 {
					time.Sleep(10*time.Minute - time.Millisecond)
					p.isFree(a, false)
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				p.isFree(a, true)
				close(slow.goOn)
				p.observer.are(t, distlock.OutcomeCancelled)
			})
		})
	}
}

// If a run is cancelled during or after its Update, its lease ends with the Update.
func TestRun_cancelMeetsTheEnd(t *testing.T) {
	for _, name := range []string{"before the Update", "while it is under way", "when it is done"} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a := p.with(echo)
				p.sessions.updated = func() {
					switch name {
					case "before the Update":
						cancel()
					case "while it is under way":
						time.AfterFunc(time.Second, cancel)
					}
					time.Sleep(2 * time.Second)
				}
				for range a.Run(ctx, p.session, schema.NewHumanMessage("first")) {
					cancel()
				}
				p.sessions.updated = nil
				if name != "when it is done" && p.free(a) {
					t.Error("the lock is free while the Update is under way")
				}
				a.AwaitWorkers()
				synctest.Wait()
				p.turns("first")
				p.isFree(a, true)
			})
		})
	}
}

func TestRun_N_lossEndsTheLingering(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a := p.with(slow.agent)
		p.cancelled(a, slow, "late")
		p.lose()
		servers.Await(t, 20*time.Second, "the lock is free", func() bool { return p.free(a) })
		time.Sleep(leaseTTL)
		p.observer.are(t, distlock.OutcomeLost) // while the worker is at work
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
		a.AwaitWorkers()
	})
}

// The end of a cancelled run waits for a Save of a tool that outlives its agent.
func TestRun_S1_endWaitsForASave(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		ctx, cancel := context.WithCancel(t.Context())
		var a *instance
		a = p.with(func(ctx context.Context, _ string) (string, error) {
			lease, _ := a.locker.FromContext(ctx, p.session)
			begun := make(chan struct{})
			go lease.Guard(ctx, func(context.Context) error { close(begun); time.Sleep(time.Second); return nil })
			<-begun
			cancel()
			return "", errAgent
		})
		_, _ = p.say(ctx, a, "q")
		time.Sleep(5 * time.Millisecond)
		p.isFree(a, false)
		time.Sleep(time.Second)
		p.isFree(a, true)
	})
}

func question(text string) (input, output schema.Message) {
	return schema.NewHumanMessage(text), schema.NewAIMessage("answer to " + text)
}

// memoryOver makes a memory whose lock is that of the instance.
func (p *place) memoryOver(i *instance) *belugamemory.Memory {
	p.t.Helper()
	mem, err := belugamemory.Wrap(memory.NewRecall(inmemory.NewMessageStore()), i.locker, lockedmemory.FixedKey(p.session), nil)
	must(p.t, err)
	return mem
}

// Calls with the context of a run are part of the run and do not wait for it.
func TestRun_joins(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		a, b := p.with(nil), p.with(echo)
		mem := p.memoryOver(a)
		nested := 0
		refused := func(ctx context.Context) { // the outer Update would take back its turn
			nested++
			refusedWith(t, second(p.say(ctx, a, "nested")), core.ErrInvalidInput, distlock.ErrInvalidOption)
		}
		a.agent = func(ctx context.Context, input string) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // or it would wait for ever
			defer cancel()
			switch input {
			case "nested":
				return input, nil
			case "of another session":
				refused(ctx)
				return input, nil
			}
			nested = 0
			in, out := question(input)
			err := errors.Join(
				mem.Save(ctx, in, out),
				mem.Turn(ctx, func(ctx context.Context) error { return mem.Save(ctx, in, out) }),
				a.locker.Do(ctx, p.session, func(context.Context) error { nested++; return nil }),
			)
			refused(ctx)
			answer, another := say(t, ctx, a.Runner, "another", "of another session")
			if nested != 3 || answer != "of another session" {
				t.Errorf("%d steps were done, and the run of another session answers %q", nested, answer)
			}
			p.isFree(a, false)
			return "done", errors.Join(err, another)
		}
		ctx := core.WithSessionID(t.Context(), p.session)
		must(t, mem.Turn(ctx, func(ctx context.Context) error { return second(p.say(ctx, a, "inside a turn")) }))
		p.isFree(a, true)
		answered(t, "done")(p.say(t.Context(), a, "q"))
		p.talk(b, "next")
		saved, err := mem.Load(ctx, "")
		if err != nil || len(saved) != 8 {
			t.Errorf("%d messages, %v; want 8", len(saved), err)
		}
	})
}

// A cancelled run inside a Turn neither keeps nor ends the lease of the Turn.
func TestRun_S1_insideTurn_doesNotLinger(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a := p.with(slow.agent)
		must(t, p.memoryOver(a).Turn(core.WithSessionID(t.Context(), p.session), func(ctx context.Context) error {
			inner, cancel := context.WithCancel(ctx)
			go func() { <-slow.begun; cancel() }()
			if _, err := p.say(inner, a, "late"); err != context.Canceled || p.free(a) {
				t.Errorf("%v; the run has released the lock of the turn: %t", err, p.free(a))
			}
			a.agent = echo
			return second(p.say(ctx, a, "q"))
		}))
		p.isFree(a, true)
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
		a.AwaitWorkers()
		p.turns("q")
	})
}

// A run ends with the loss even if its context has the lease without its end, as after
// WithoutCancel.
func TestRun_N_joinedRun_endsWithLoss(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(func(ctx context.Context, input string) (string, error) {
			p.lose()
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		err := a.locker.Do(t.Context(), p.session, func(ctx context.Context) error {
			p.refused(context.WithoutCancel(ctx), a, belugamemory.ErrLockLost, distlock.ErrLost)
			a.agent = never("its lease is lost")
			p.refused(context.WithoutCancel(ctx), a, belugamemory.ErrLockLost, distlock.ErrLost)
			return nil
		})
		if !errors.Is(err, distlock.ErrLost) {
			t.Error(err)
		}
	})
}
