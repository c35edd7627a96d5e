package belugamemory

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

type exchanges = iter.Seq2[lockedmemory.Exchange[schema.Message], error]

// read returns the texts of a sequence, as "q 1|a 1|…", and the place of its last exchange.
func read(t testing.TB, all exchanges) (text string, last lockedmemory.Place) {
	t.Helper()
	var messages []schema.Message
	for e, err := range all {
		must(t, err)
		messages, last = append(messages, e.Messages...), e.Place
	}
	return texts(messages), last
}

func replies(text string) func(context.Context) ([]schema.Message, error) {
	return func(context.Context) ([]schema.Message, error) {
		return []schema.Message{schema.NewToolMessage("call-1", "result of "+text), schema.NewAIMessage(text)}, nil
	}
}

// The memory by name passes on what its session store offers, with Beluga's messages.
func TestStore_callsPassedOn(t *testing.T) {
	for name, url := range backends(t) {
		t.Run(name, func(t *testing.T) {
			m, ctx, other := open(t, url, nil), inSession(t, "passed on"), inSession(t, "other")
			save(t, other, m, "elsewhere")
			is := func(want string) (last lockedmemory.Place) {
				t.Helper()
				got, last := read(t, m.Forward(ctx, lockedmemory.Place{}))
				if got != want {
					t.Errorf("the history is %q, want %q", got, want)
				}
				return last
			}
			save(t, ctx, m, "1")
			must(t, m.Append(ctx, schema.NewHumanMessage("q 2"), schema.NewToolMessage("call", "t 2"),
				schema.NewAIMessage("a 2")))
			for range 2 {
				answer, err := m.Answer(ctx, "id", schema.NewHumanMessage("q 3"), replies("a 3"))
				if err != nil || texts(answer) != "result of a 3|a 3" {
					t.Errorf("Answer: %q, %v", texts(answer), err)
				}
			}
			last := is("q 1|a 1|q 2|t 2|a 2|q 3|result of a 3|a 3")
			if loaded := history(t, ctx, m); loaded != "q 1|a 1|q 2|t 2|a 2|q 3|result of a 3|a 3" {
				t.Errorf("Load: %q", loaded)
			}
			documents, err := m.Search(ctx, "A 2", 1)
			if err != nil || len(documents) != 1 || documents[0].Content != "a 2" {
				t.Errorf("Search: %+v, %v", documents, err)
			}
			if older, _ := read(t, m.Backward(ctx, last)); older != "q 2|t 2|a 2|q 1|a 1" {
				t.Errorf("Backward: %q", older)
			}
			found, known, err := m.Answered(ctx, "id")
			if err != nil || !known || found.Place != last {
				t.Errorf("Answered: %+v, %t, %v", found, known, err)
			}
			must(t, m.Turn(ctx, func(ctx context.Context) error {
				newest, err := m.Last(ctx, 1)
				if err != nil {
					return err
				}
				newest[0].Messages = []schema.Message{newest[0].Input(), schema.NewAIMessage("another")}
				return m.Replace(ctx, last, last, newest[0])
			}))
			is("q 1|a 1|q 2|t 2|a 2|q 3|another")
			mustHaveCode(t, m.Replace(ctx, last, last), core.ErrInvalidInput, sessionstore.ErrRange)
			own, err := SessionKey(ctx)
			must(t, err)
			mustHaveCode(t, m.Fork(ctx, own, lockedmemory.Place{}), core.ErrInvalidInput, sessionstore.ErrNotEmpty)
			names := map[string]bool{}
			for name, err := range m.Sessions(t.Context()) {
				must(t, err)
				names[name] = true
			}
			if !names["passed on"] {
				t.Errorf("Sessions yields %v", names)
			}
			must(t, second(m.Ping(t.Context())))
			must(t, m.Clear(ctx))
			_, err = m.Answer(ctx, "id", schema.NewHumanMessage("q 3"), replies("a 3"))
			mustHaveCode(t, err, core.ErrInvalidInput, lockedmemory.ErrAnswerGone)
			must(t, m.Delete(ctx))
			is("")
			if found, known, err := m.Answered(ctx, "id"); known || err != nil {
				t.Errorf("after Delete: %+v, %v", found, err)
			}
			if got := history(t, other, m); got != "q elsewhere|a elsewhere" {
				t.Errorf("after Delete, another session has %q", got)
			}
		})
	}
}

// storeCalls has the calls of a memory that need a session store.
func storeCalls(m *Memory) map[string]func(context.Context) error {
	end := func(all exchanges) (err error) {
		for _, err = range all {
		}
		return err
	}
	return map[string]func(context.Context) error{
		"Answer": func(ctx context.Context) error {
			_, err := m.Answer(ctx, "id", schema.NewHumanMessage("q"), replies("a"))
			return err
		},
		"SaveOnce": func(ctx context.Context) error { return m.SaveOnce(ctx, "once", schema.NewHumanMessage("q")) },
		"Append":   func(ctx context.Context) error { return m.Append(ctx, schema.NewHumanMessage("q")) },
		"Replace":  func(ctx context.Context) error { return m.Replace(ctx, lockedmemory.Place{}, lockedmemory.Place{}) },
		"Delete":   m.Delete,
		"Answered": func(ctx context.Context) error { _, _, err := m.Answered(ctx, "id"); return err },
		"Last":     func(ctx context.Context) error { _, err := m.Last(ctx, 1); return err },
		"Backward": func(ctx context.Context) error { return end(m.Backward(ctx, lockedmemory.Place{})) },
		"Forward":  func(ctx context.Context) error { return end(m.Forward(ctx, lockedmemory.Place{})) },
	}
}

// A memory of another kind, a closed memory, and one without a session fail with a code.
func TestStore_refusals_code(t *testing.T) {
	other := ofOne(t, recall())
	closed, unnamed := open(t, "mem://", nil), open(t, "mem://", nil)
	must(t, closed.Close(t.Context()))
	for m, sentinel := range map[*Memory]error{
		other: errors.ErrUnsupported, closed: distlock.ErrClosed, unnamed: distlock.ErrInvalidKey,
	} {
		code := core.ErrInvalidInput
		if m == closed {
			code = ErrShuttingDown
		}
		for name, call := range storeCalls(m) {
			t.Run(name, func(t *testing.T) { mustHaveCode(t, call(t.Context()), code, sentinel) })
		}
	}
}

// The error of an Answer's function stays as it was, and nothing is stored.
func TestAnswer_functionFails_unchanged(t *testing.T) {
	m, ctx := open(t, "mem://", nil), inSession(t, "failing")
	for _, failure := range []error{errors.New("no model"), distlock.ErrUnavailable} {
		answer, err := m.Answer(ctx, "id", schema.NewHumanMessage("q"), func(context.Context) ([]schema.Message, error) {
			return []schema.Message{schema.NewAIMessage("half")}, failure
		})
		if answer != nil || err != failure {
			t.Errorf("Answer: %q, %v", texts(answer), err)
		}
	}
	if got := history(t, ctx, m); got != "" {
		t.Errorf("the history is %q", got)
	}
}
