package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/distlock"
)

// slice is a session in memory. The saves are what it makes of one.
type slice struct {
	messages []subject.Message
	saves    func(n int, question, answer subject.Message) []subject.Message
	n        int
}

func (s *slice) Save(_ context.Context, question, answer subject.Message) error {
	s.messages = append(s.messages, s.saves(s.n, question, answer)...)
	s.n++
	return nil
}

func (s *slice) Load(context.Context, string) ([]subject.Message, error) { return s.messages, nil }

func (s *slice) Turn(ctx context.Context, fn func(context.Context) error, _ ...distlock.CallOption) error {
	return fn(ctx)
}

func TestKept_noticesWhatWasNotSaved(t *testing.T) {
	type messages = []subject.Message
	for name, c := range map[string]struct {
		saves func(n int, question, answer subject.Message) messages
		want  string // of the error; empty: none
	}{
		"all is well": {func(_ int, q, a subject.Message) messages { return messages{q, a} }, ""},
		"nothing":     {func(int, subject.Message, subject.Message) messages { return nil }, "0 messages are there"},
		"one is lost": {func(n int, q, a subject.Message) messages {
			if n == 7 {
				return nil
			}
			return messages{q, a}
		}, "messages are there"},
		"one is there twice": {func(n int, q, a subject.Message) messages {
			if n == 7 {
				return messages{q, a, q, a}
			}
			return messages{q, a}
		}, "messages are there"},
		"others": {func(_ int, q, a subject.Message) messages { return messages{a, q} }, "other messages"},
		"cut":    {func(_ int, q, a subject.Message) messages { a.Text = a.Text[:10]; return messages{q, a} }, "other messages"},
	} {
		for how, timed := range map[string]func(*session) sample{
			"saves":          func(s *session) sample { return s.saves },
			"savesInTurn":    func(s *session) sample { return s.savesInTurn },
			"savesAfterTurn": func(s *session) sample { return s.savesAfterTurn },
		} {
			s := &session{Session: &slice{saves: c.saves}}
			times, err := timed(s)(t.Context(), nil)
			if err != nil || len(times) != block {
				t.Errorf("%s, %s: %d times, %v", name, how, len(times), err)
			}
			for what, err := range map[string]error{"check": s.check(t.Context()), "loads": second(s.loads(t.Context(), nil))} {
				switch {
				case c.want == "" && err != nil:
					t.Errorf("%s, %s: %s: %v", name, how, what, err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("%s, %s: %s: got %v, want %q", name, how, what, err, c.want)
				}
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestKept_aTurnTakesOneWhoKnowsTurns(t *testing.T) {
	s := &session{Session: struct{ subject.Session }{}}
	if _, err := s.savesInTurn(t.Context(), nil); err == nil {
		t.Error("no error")
	}
}

func TestExchange_isOfTheSizeThatIsSaid(t *testing.T) {
	for _, n := range []int{0, 7, 99_999} {
		question, answer := exchange(n)
		for size, m := range map[int]subject.Message{questionSize: question, answerSize: answer} {
			if text, err := json.Marshal(m); err != nil || len(text) != size {
				t.Errorf("%s is of %d bytes, want %d", text, len(text), size)
			}
		}
	}
}

func TestAlternate_letsAllTakeTurns(t *testing.T) {
	var order []string
	takes := func(name string, each ...time.Duration) sample {
		return func(_ context.Context, times []time.Duration) ([]time.Duration, error) {
			order = append(order, name)
			return append(times, each...), nil
		}
	}
	medians, err := alternate(t.Context(), 1, 0, takes("a", 1, 2, 3), takes("b", 9), takes("c", 5, 5))
	if err != nil || !slices.Equal(medians, []time.Duration{2, 9, 5}) || !slices.Equal(order, []string{"b", "c", "a"}) {
		t.Errorf("medians %v, %v, in the order %v", medians, err, order)
	}
	why := errors.New("no answer")
	fails := func(context.Context, []time.Duration) ([]time.Duration, error) { return nil, why }
	if _, err := alternate(t.Context(), 0, time.Minute, takes("a", 1), fails); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}
