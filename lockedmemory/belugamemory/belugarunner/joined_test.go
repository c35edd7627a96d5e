package belugarunner_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/memory/stores/inmemory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

func question(text string) (input, output schema.Message) {
	return schema.NewHumanMessage(text), schema.NewAIMessage("answer to " + text)
}

// Calls with the context of a run are part of the run and do not wait for it.
func TestRun_joins(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		var mem *belugamemory.Memory
		a, b := p.with(t, nil), p.with(t, echo)
		nested := 0
		refused := func(ctx context.Context) { // the outer Update would take back its turn
			for _, e := range a.Run(ctx, p.session, schema.NewHumanMessage("nested")) {
				nested++
				refusedWith(t, e, core.ErrInvalidInput, distlock.ErrInvalidOption)
			}
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
			for _, e := range a.Run(ctx, "another", schema.NewHumanMessage("of another session")) {
				err = errors.Join(err, e)
				nested++
			}
			if nested != 4 {
				t.Errorf("%d steps were done", nested)
			}
			if p.free(t, a) {
				t.Error("a part of the run has released the lock")
			}
			return "done", err
		}
		inner := memory.NewRecall(inmemory.NewMessageStore())
		var err error
		if mem, err = belugamemory.Wrap(inner, a.locker, lockedmemory.FixedKey(p.session), nil); err != nil {
			t.Fatal(err)
		}
		ctx := core.WithSessionID(t.Context(), p.session)
		if err := mem.Turn(ctx, func(ctx context.Context) error {
			return second(p.oneError(ctx, a, "inside a turn"))
		}); err != nil {
			t.Error(err)
		}
		if !p.free(t, a) {
			t.Error("the lock stands")
		}
		answered(t, "done")(p.say(t.Context(), a, "q"))
		succeeds(t)(p.say(t.Context(), b, "next"))
		saved, err := mem.Load(ctx, "")
		if err != nil || len(saved) != 8 {
			t.Errorf("%d messages, %v; want 8", len(saved), err)
		}
	})
}

func (p *place) oneError(ctx context.Context, i *instance, input string) (string, error) {
	answer, errs := p.say(ctx, i, input)
	return answer, errors.Join(errs...)
}

// A cancelled run inside a Turn does not keep the lease of the Turn.
func TestRun_insideTurn_doesNotLinger(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a := p.with(t, slow.agent)
		mem, err := belugamemory.Wrap(memory.NewRecall(inmemory.NewMessageStore()), a.locker,
			lockedmemory.FixedKey(p.session), nil)
		must(t, err)
		err = mem.Turn(core.WithSessionID(t.Context(), p.session), func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			go func() { <-slow.begun; cancel() }()
			_, err := p.oneError(ctx, a, "late")
			if p.free(t, a) {
				t.Error("the run has released the lock of the turn")
			}
			return err
		})
		if !errors.Is(err, context.Canceled) || !p.free(t, a) {
			t.Errorf("the turn: %v; the lock is free: %t", err, p.free(t, a))
		}
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
	})
}

// A run ends with the loss even if its context has the lease without its end, as after
// WithoutCancel.
func TestRun_N_joinedRun_endsWithLoss(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, nil)
		a.agent = func(ctx context.Context, input string) (string, error) {
			p.lose(t)
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		err := a.locker.Do(t.Context(), p.session, func(ctx context.Context) error {
			_, errs := p.say(context.WithoutCancel(ctx), a, "q")
			if len(errs) != 1 {
				t.Fatalf("%v, want one error", errs)
			}
			refusedWith(t, errs[0], belugamemory.ErrLockLost, distlock.ErrLost)
			a.agent = func(context.Context, string) (string, error) { panic("its lease is lost") }
			_, errs = p.say(context.WithoutCancel(ctx), a, "after the loss")
			refusedWith(t, errs[0], belugamemory.ErrLockLost, distlock.ErrLost)
			return nil
		})
		if !errors.Is(err, distlock.ErrLost) {
			t.Error(err)
		}
	})
}

// outcomes is an Observer that records the outcomes of turns.
type outcomes struct {
	mu    sync.Mutex
	began int
	ended []distlock.Outcome
	last  distlock.Operation
}

func (o *outcomes) Start(ctx context.Context, op *distlock.Operation) context.Context {
	if op.Name == lockedmemory.OpTurn {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.began++
	}
	return ctx
}

func (o *outcomes) End(_ context.Context, op *distlock.Operation) {
	if op.Name == lockedmemory.OpTurn {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended, o.last = append(o.ended, op.Outcome), *op
	}
}

func (o *outcomes) all() []distlock.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began != len(o.ended) {
		return []distlock.Outcome{"not all have ended"}
	}
	return o.ended
}

func TestRun_observerSeesEveryRun(t *testing.T) {
	failing := func(context.Context, string) (string, error) { return "", errAgent }
	for want, test := range map[distlock.Outcome]func(t *testing.T, p *place){
		distlock.OutcomeDone: func(t *testing.T, p *place) { p.say(t.Context(), p.with(t, echo), "q") },
		distlock.OutcomeFailed: func(t *testing.T, p *place) {
			if _, errs := p.say(t.Context(), p.with(t, failing), "q"); !slices.Equal(errs, []error{errAgent}) {
				t.Errorf("%v", errs)
			}
		},
		distlock.OutcomeCancelled: func(t *testing.T, p *place) {
			slow := newThinks()
			a := p.with(t, slow.agent)
			p.cancelled(t, a, slow, "q")
			close(slow.goOn)
			a.AwaitWorkers()
		},
		distlock.OutcomeLost: func(t *testing.T, p *place) {
			p.say(t.Context(), p.with(t, func(ctx context.Context, input string) (string, error) {
				p.lose(t)
				<-ctx.Done()
				return echo(ctx, input)
			}), "q")
		},
		distlock.OutcomeBusy: func(t *testing.T, p *place) {
			other := p.newLocker(t, distlock.Options{})
			if err := other.Do(t.Context(), p.session, func(ctx context.Context) error {
				p.say(ctx, p.with(t, echo, belugarunner.Options{Busy: lockedmemory.Refuse}), "q")
				return nil
			}); err != nil {
				t.Error(err)
			}
		},
		distlock.OutcomeTimeout: func(t *testing.T, p *place) {
			other := p.newLocker(t, distlock.Options{})
			if err := other.Do(t.Context(), p.session, func(ctx context.Context) error {
				p.say(ctx, p.with(t, echo, belugarunner.Options{Wait: time.Second}), "q")
				return nil
			}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(string(want), func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				seen := new(outcomes)
				p.observer = seen
				test(t, p)
				if got := seen.all(); !slices.Equal(got, []distlock.Outcome{want}) {
					t.Errorf("outcomes %v, want %s", got, want)
				}
			})
		})
	}
}

// The operation of a run says how long the run waited and held the session.
func TestRun_observerSeesWaitAndHeld(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		seen := new(outcomes)
		p.observer = seen
		agent := func(ctx context.Context, input string) (string, error) {
			time.Sleep(3 * time.Second)
			return echo(ctx, input)
		}
		a, other := p.with(t, agent), p.newLocker(t, distlock.Options{})
		lease, err := other.Acquire(t.Context(), p.session)
		must(t, err)
		time.AfterFunc(2*time.Second, func() { _ = lease.Release(context.Background()) })
		p.say(t.Context(), a, "q")
		if op := seen.last; op.Wait.Round(time.Millisecond) != 2*time.Second || op.Held.Round(time.Millisecond) != 3*time.Second {
			t.Errorf("the run waited for %s and held for %s", op.Wait, op.Held)
		}
		_ = a.locker.Do(t.Context(), p.session, func(ctx context.Context) error {
			p.say(ctx, a, "q")
			return nil
		})
		if op := seen.last; op.Wait != 0 || op.Held != 0 { // the lease is not its own
			t.Errorf("inside a lease, the run waited for %s and held for %s", op.Wait, op.Held)
		}
	})
}

// The end of a cancelled run waits for a Save of a tool that outlives its agent.
func TestRun_S1_endWaitsForASave(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		a.agent = func(ctx context.Context, _ string) (string, error) {
			lease, _ := a.locker.FromContext(ctx, p.session)
			begun := make(chan struct{})
			go lease.Guard(ctx, func(context.Context) error { close(begun); time.Sleep(time.Second); return nil })
			<-begun
			cancel()
			return "", errAgent
		}
		p.say(ctx, a, "q")
		if time.Sleep(5 * time.Millisecond); p.free(t, a) {
			t.Error("the session is free while a Save of the cancelled run is under way")
		}
		if time.Sleep(time.Second); !p.free(t, a) {
			t.Error("the session is held after the Save")
		}
	})
}

// A run in a Turn or in a run uses the lease around it.
func TestRun_S1_innerRunEndsNothing(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, nil)
		must(t, a.locker.Do(t.Context(), p.session, func(ctx context.Context) error {
			inner, cancel := context.WithCancel(ctx)
			a.agent = func(ctx context.Context, input string) (string, error) { cancel(); return "", errAgent }
			p.say(inner, a, "q")
			a.AwaitWorkers()
			a.agent = echo
			return second(p.oneError(ctx, a, "q"))
		}))
		if got := p.turns(t); got != "q" {
			t.Errorf("turns %q", got)
		}
	})
}
