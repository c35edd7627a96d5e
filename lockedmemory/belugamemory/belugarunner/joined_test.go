package belugarunner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/memory/stores/inmemory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

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
			_, err := p.say(ctx, a, "nested")
			refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
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
			if p.free(a) {
				t.Error("a part of the run has released the lock")
			}
			return "done", errors.Join(err, another)
		}
		ctx := core.WithSessionID(t.Context(), p.session)
		must(t, mem.Turn(ctx, func(ctx context.Context) error { return second(p.say(ctx, a, "inside a turn")) }))
		if !p.free(a) {
			t.Error("the lock stands")
		}
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
		if !p.free(a) {
			t.Error("the lock stands")
		}
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
