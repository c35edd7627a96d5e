package storetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// model counts the questions. Its answers differ.
type model struct{ asked atomic.Int64 }

func (m *model) reply(context.Context) ([]Message, error) {
	return m.said(m.asked.Add(1)), nil
}

// said returns answer n.
func (m *model) said(n int64) []Message {
	return []Message{{"tool", "result " + strconv.FormatInt(n, 10)}, answer(n)}
}

// answers checks an Answer to the question of a name.
func (i *instance) answers(ctx context.Context, id string, name any,
	fn func(context.Context) ([]Message, error), want []Message) {
	i.Helper()
	got, err := i.memory.Answer(ctx, id, question(name), fn)
	if err != nil || !slices.Equal(got, want) {
		i.Errorf("Answer to %v: %s, %v; want %s", name, text(got), err, text(want))
	}
}

// An Answer that is repeated returns the stored answer and asks no model: by another instance, by several at
// once, and after an edit.
func answeredOnce(h *harness) {
	a, b, m := h.instance(nil, nil), h.instance(nil, nil), &model{}
	a.answers(h.Context(), "one", 1, m.reply, m.said(1))
	b.answers(h.Context(), "one", 1, m.reply, m.said(1))
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() { []*instance{a, b}[n%2].answers(h.Context(), "two", 2, m.reply, m.said(2)) })
	}
	all.Wait()
	if n := m.asked.Load(); n != 2 {
		h.Errorf("the model was asked %d times", n)
	}
	history := a.all(h.Context())
	for n, id := range []string{"one", "two"} {
		want := append([]Message{question(n + 1)}, m.said(int64(n+1))...)
		if e := history[n]; e.ID != id || !slices.Equal(e.Messages, want) {
			h.Errorf("exchange %d: %+v", n, e)
		}
	}
	edited := history[0]
	edited.Messages = []Message{question("edited"), answer("x"), answer("y")}
	if err := b.memory.Replace(h.Context(), edited.Place, edited.Place, edited); err != nil {
		h.Error(err)
	}
	a.answers(h.Context(), "one", 1, m.reply, []Message{answer("x"), answer("y")})
}

// late is a driver that keeps the next Appends, and answers with an error.
type late struct {
	storedriver.Driver
	next int
	kept []storedriver.Append
}

func (d *late) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	if len(d.kept) == d.next {
		return d.Driver.Append(ctx, a)
	}
	d.kept = append(d.kept, a)
	return storedriver.Verdict{}, errors.New("no answer")
}

// An Answer of unknown outcome is settled by its repetition: it finds the stored answer, or stores another
// one, and a late packet of the first try is refused.
func answeredAfterUnknownOutcome(h *harness) {
	stored, packet, m := &lost{next: true}, &late{next: 1}, &model{}
	a := h.instance(nil, func(d storedriver.Driver) storedriver.Driver { stored.Driver = d; return stored })
	b := h.instance(nil, func(d storedriver.Driver) storedriver.Driver { packet.Driver = d; return packet })
	for n, id := range []string{"stored", "late"} {
		got, err := []*instance{a, b}[n].memory.Answer(h.Context(), id, question(1), m.reply)
		if got != nil || !errors.Is(err, distlock.ErrOutcomeUnknown) {
			h.Errorf("%s: %s, %v; want ErrOutcomeUnknown", id, text(got), err)
		}
	}
	b.answers(h.Context(), "stored", 1, m.reply, m.said(1))
	a.answers(h.Context(), "late", 1, func(ctx context.Context) ([]Message, error) {
		if v, err := b.driver.Append(h.Context(), packet.kept[0]); err != nil || v.Outcome != storedriver.Stale {
			h.Errorf("the late packet: %+v, %v", v, err)
		}
		return m.reply(ctx)
	}, m.said(3))
	b.answers(h.Context(), "late", 1, m.reply, m.said(3))
	if n := len(a.all(h.Context())); n != 2 {
		h.Errorf("%d exchanges", n)
	}
}

// An answer that was trimmed or cleared is not asked for again. After a Delete it is.
func answersGone(h *harness) {
	a, m := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 1}}, nil), &model{}
	gone := func(id string) {
		h.Helper()
		if got, err := a.memory.Answer(h.Context(), id, question(1), m.reply); got != nil ||
			!errors.Is(err, lockedmemory.ErrAnswerGone) {
			h.Errorf("%s, %v; want ErrAnswerGone", text(got), err)
		}
	}
	a.answers(h.Context(), "trimmed", 1, m.reply, m.said(1))
	a.answers(h.Context(), "cleared", 2, m.reply, m.said(2))
	a.turn(func(context.Context) {})
	a.mustSave(h.Context(), "later")
	gone("trimmed")
	a.answers(h.Context(), "replaced", 3, m.reply, m.said(3))
	history := a.all(h.Context())
	last := history[len(history)-1]
	last.Messages = last.Messages[:1]
	if err := a.memory.Replace(h.Context(), last.Place, last.Place, last); err != nil {
		h.Fatal(err)
	}
	gone("replaced")
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Fatal(err)
	}
	gone("cleared")
	if n := m.asked.Load(); n != 3 {
		h.Errorf("the model was asked %d times", n)
	}
	if err := a.memory.Delete(h.Context()); err != nil {
		h.Fatal(err)
	}
	a.answers(h.Context(), "cleared", 2, m.reply, m.said(4))
}

// What the function of an Answer writes itself stands at once, and has no part in the answer: it is stored
// whole under the ID, or not at all. A write under the ID itself is the one that stands.
func answersInside(h *harness) {
	a, m := h.instance(nil, nil), &model{}
	crash := errors.New("crash")
	_, err := a.memory.Answer(h.Context(), "id", question(1), func(ctx context.Context) ([]Message, error) {
		a.mustSave(ctx, "plain")
		a.mustSaveOnce(ctx, "id/1", "step")
		if err := a.memory.Turn(ctx, func(ctx context.Context) error { return a.save(ctx, "turn") }); err != nil {
			h.Errorf("a Turn inside: %v", err)
		}
		a.answers(ctx, "other", 2, m.reply, m.said(1))
		return nil, crash
	})
	if err != crash {
		h.Errorf("Answer: %v", err)
	}
	a.isUnknown("id")
	a.answers(h.Context(), "id", 1, func(ctx context.Context) ([]Message, error) {
		a.mustSaveOnce(ctx, "id/1", "step") // again
		a.answers(ctx, "other", 2, m.reply, m.said(1))
		if n := len(a.all(ctx)); n != 4 {
			h.Errorf("%d exchanges", n)
		}
		if err := a.memory.Clear(ctx); err != nil {
			h.Errorf("Clear: %v", err)
		}
		return []Message{answer(1)}, nil
	}, []Message{answer(1)})
	a.has(1)
	// The outer Answer meets the ID of the inner one.
	got, err := a.memory.Answer(h.Context(), "twice", question(3), func(ctx context.Context) ([]Message, error) {
		a.answers(ctx, "twice", 3, m.reply, m.said(2))
		return m.reply(ctx)
	})
	if got != nil || !errors.Is(err, sessionstore.ErrIDConflict) {
		h.Errorf("the outer Answer: %s, %v; want ErrIDConflict", text(got), err)
	}
	a.answers(h.Context(), "same", 4, func(ctx context.Context) ([]Message, error) {
		return a.memory.Answer(ctx, "same", question(4), m.reply)
	}, m.said(4))
	a.answers(h.Context(), "twice", 3, m.reply, m.said(2))
	if n := len(a.all(h.Context())); n != 3 || m.asked.Load() != 4 {
		h.Errorf("%d exchanges; the model was asked %d times", n, m.asked.Load())
	}
}

// A call that finds its session busy says whether the holder is at work on the same message: of another
// instance, and in the process of the holder.
func answersBusy(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	same := func(i *instance, busy lockedmemory.BusyPolicy, id string, opts ...distlock.CallOption) bool {
		h.Helper()
		memory, err := lockedmemory.New(i.store, i.locker, lockedmemory.FixedKey(h.session), &lockedmemory.Options{Busy: busy})
		if err != nil {
			h.Fatal(err)
		}
		ended := make(chan error)
		go func() { // not in the goroutine of the turn, whose call would be refused as its own
			_, err := memory.Answer(h.Context(), id, question(id), (&model{}).reply, opts...)
			ended <- err
		}()
		var refusal *distlock.BusyError
		if err := <-ended; !errors.As(err, &refusal) {
			h.Fatalf("Answer of a busy session: %v", err)
		}
		return refusal.SameID
	}
	ways := func(held string) {
		h.Helper()
		if waited := same(b, lockedmemory.Queue, "one", distlock.WithWait(time.Second)); waited != (held == "one") {
			h.Errorf("during %q, after a wait: SameID is %t", held, waited)
		}
		for _, id := range []string{"one", "two"} {
			for n, i := range []*instance{a, b} {
				if same(i, lockedmemory.Refuse, id) != (id == held) {
					h.Errorf("during %q, %q of instance %d: SameID is %t", held, id, n, id != held)
				}
			}
		}
	}
	a.turn(func(context.Context) { ways("") })
	a.answers(h.Context(), "one", 1, func(context.Context) ([]Message, error) {
		ways("one")
		return []Message{answer(1)}, nil
	}, []Message{answer(1)})
}

// A question that cannot be stored is refused before the model is asked.
func answersBadQuestion(h *harness) {
	a := h.instance(&options{view: sessionstore.Options{MaxMessage: 1000}}, nil)
	for bad, want := range map[string]error{"\xff": sessionstore.ErrCodec, strings.Repeat("x", 1000): sessionstore.ErrTooLarge} {
		got, err := a.memory.Answer(h.Context(), "id", Message{Text: bad}, func(context.Context) ([]Message, error) {
			h.Error("the model was asked")
			return []Message{answer(1)}, nil
		})
		if got != nil || !errors.Is(err, want) {
			h.Errorf("%s, %v; want %v", text(got), err, want)
		}
	}
	a.isUnknown("id")
	a.answers(h.Context(), "id", 1, (&model{}).reply, (&model{}).said(1))
}
