package belugarunner_test

import (
	"context"
	"errors"
	"iter"
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
func TestLockRun_joins(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		var mem *belugamemory.Memory
		a, b := p.with(t, nil), p.with(t, echo)
		a.agent = func(ctx context.Context, input string) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // or it would wait for ever
			defer cancel()
			in, out := question(input)
			nested := 0
			err := errors.Join(
				mem.Save(ctx, in, out),
				mem.Turn(ctx, func(ctx context.Context) error { return mem.Save(ctx, in, out) }),
				a.locker.Do(ctx, p.session, func(context.Context) error { nested++; return nil }),
			)
			var again func(ctx context.Context, sessionID, input string) iter.Seq2[string, error]
			refused := func(ctx context.Context) { // the outer Update would take back its turn
				for _, e := range again(ctx, p.session, "nested") {
					nested++
					refusedWith(t, e, core.ErrInvalidInput, distlock.ErrNotAcquired)
				}
			}
			other := &scripted{sessions: a.scripted.sessions, agent: func(ctx context.Context, input string) (string, error) {
				if input != "nested" {
					refused(ctx)
				}
				return echo(ctx, input)
			}}
			again = must2(belugarunner.LockRun(a.locker, other.Run))
			refused(ctx)
			for _, e := range again(ctx, "another", "of another session") {
				err = errors.Join(err, e)
				nested++
			}
			if nested != 8 {
				t.Errorf("%d steps were done", nested)
			}
			if p.free(t, a) {
				t.Error("a part of the run has released the lock")
			}
			return "done", err
		}
		inner := memory.NewRecall(inmemory.NewMessageStore())
		var err error
		if mem, err = belugamemory.Wrap(inner, a.locker, belugamemory.WithSessionID(p.session)); err != nil {
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
		if answer, errs := p.say(t.Context(), a, "q"); answer != "done" || errs != nil {
			t.Errorf("%q, %v", answer, errs)
		}
		if _, errs := p.say(t.Context(), b, "next"); errs != nil {
			t.Error(errs)
		}
		saved, err := mem.Load(ctx, "")
		if err != nil || len(saved) != 8 {
			t.Errorf("%d messages, %v; want 8", len(saved), err)
		}
	})
}

// A memory with another Locker does not wait for the run around it.
func TestLockRun_L_otherLocker_failsAtOnce(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a, b := p.with(t, nil), p.with(t, echo)
		mem, err := belugamemory.Wrap(memory.NewRecall(inmemory.NewMessageStore()), b.locker,
			belugamemory.WithInnerSeparatesSessions())
		must(t, err)
		a.agent = func(ctx context.Context, input string) (string, error) {
			in, out := question(input)
			return "", mem.Save(ctx, in, out)
		}
		start := time.Now()
		_, errs := p.say(t.Context(), a, "q")
		var busy *distlock.BusyError
		if len(errs) != 1 || !errors.As(errs[0], &busy) || !busy.Self || time.Since(start) != 0 {
			t.Errorf("after %s: %v", time.Since(start), errs)
		}
	})
}

func (p *place) oneError(ctx context.Context, i *instance, input string) (string, error) {
	answer, errs := p.say(ctx, i, input)
	return answer, errors.Join(errs...)
}

// A cancelled run inside a Turn does not keep the lease of the Turn.
func TestLockRun_insideTurn_doesNotLinger(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a := p.with(t, slow.agent)
		mem, err := belugamemory.Wrap(memory.NewRecall(inmemory.NewMessageStore()), a.locker,
			belugamemory.WithSessionID(p.session))
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
func TestLockRun_N_joinedRun_endsWithLoss(t *testing.T) {
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
			never, err := belugarunner.LockRun(a.locker, func(context.Context, string, string) iter.Seq2[string, error] {
				panic("its lease is lost")
			})
			must(t, err)
			for _, err := range never(context.WithoutCancel(ctx), p.session, "after the loss") {
				refusedWith(t, err, belugamemory.ErrLockLost, distlock.ErrLost)
			}
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

func TestLockRun_observerSeesEveryRun(t *testing.T) {
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
			p.cancelled(t, p.with(t, slow.agent), slow, "q")
			close(slow.goOn)
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
				p.say(ctx, p.with(t, echo, belugarunner.WithBusy(lockedmemory.Refuse)), "q")
				return nil
			}); err != nil {
				t.Error(err)
			}
		},
		distlock.OutcomeTimeout: func(t *testing.T, p *place) {
			other := p.newLocker(t, distlock.Options{})
			if err := other.Do(t.Context(), p.session, func(ctx context.Context) error {
				p.say(ctx, p.with(t, echo, belugarunner.WithWait(time.Second)), "q")
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
				stored := 0
				if want == distlock.OutcomeDone {
					stored = 1
				}
				if got := seen.last.Exchanges; got != stored {
					t.Errorf("the run has stored %d exchanges, want %d", got, stored)
				}
			})
		})
	}
}

// The operation of a run says how long the run waited and held the session.
func TestLockRun_observerSeesWaitAndHeld(t *testing.T) {
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
