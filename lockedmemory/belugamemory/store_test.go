package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/memory"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/migrated"
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
	migrated.OnEach(t, func(t *testing.T, url string) {
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
		holds(t, ctx, m, "q 1|a 1|q 2|t 2|a 2|q 3|result of a 3|a 3")
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
		holds(t, other, m, "q elsewhere|a elsewhere")
	})
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
	holds(t, ctx, m, "")
}

// Other memories of Beluga store a nil pointer, and a later search ends the process.
func TestMemory_nilMessage_refused(t *testing.T) {
	inner := recall()
	wrapped := ofOne(t, inner)
	var q *schema.HumanMessage
	a := schema.NewAIMessage("a")
	ctx := inSession(t, "s")
	for _, m := range []*Memory{wrapped, open(t, "mem://", nil)} {
		mustHaveCode(t, m.Save(ctx, q, a), core.ErrInvalidInput, distlock.ErrInvalidOption)
		mustHaveCode(t, m.Save(ctx, a, q), core.ErrInvalidInput, distlock.ErrInvalidOption)
		mustHaveCode(t, m.Append(ctx, q), core.ErrInvalidInput, distlock.ErrInvalidOption)
		if got, err := m.Load(ctx, "a"); len(got) != 0 || err != nil {
			t.Errorf("the memory has %v, %v", got, err)
		}
	}
	m := open(t, "mem://", nil)
	_, err := m.Answer(ctx, "id", q, replies("a"))
	mustHaveCode(t, err, core.ErrInvalidInput, sessionstore.ErrCodec)
	mustHaveCode(t, m.MessageStore().Append(ctx, q), core.ErrInvalidInput, distlock.ErrInvalidOption)
}

// instances returns two instances that share only the server.
func instances(t testing.TB, url string) (a, b *Memory) {
	t.Helper()
	a, b = open(t, url+"?client_name=a", nil), open(t, url+"?client_name=b", nil)
	if a.Locker() == b.Locker() {
		t.Fatal("they share a Locker")
	}
	return a, b
}

// recalls returns a memory.Recall over the sessions of m, with its pairs under m's lock unless bare.
func recalls(t testing.TB, m *Memory, bare bool) memory.Memory {
	t.Helper()
	recall := memory.NewRecall(m.MessageStore())
	if bare {
		return recall
	}
	locked, err := Wrap(recall, m.Locker(), SessionKey, nil)
	must(t, err)
	return locked
}

func TestMessageStore_O_concurrentPairs_whole(t *testing.T) {
	const pairs = 50 // of each instance
	tornPairs := func(bare bool) (torn int) {
		a, b := instances(t, migrated.EmptyRedis(t))
		ctx := inSession(t, "s")
		var all sync.WaitGroup
		for name, m := range map[string]*Memory{"a": a, "b": b} {
			all.Go(func() {
				r := recalls(t, m, bare)
				for i := range pairs {
					text := fmt.Sprint(name, i)
					if err := r.Save(ctx, schema.NewHumanMessage(text), schema.NewAIMessage(text)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		messages, err := recalls(t, a, bare).Load(ctx, "")
		must(t, err)
		if len(messages) != 4*pairs {
			t.Fatalf("%d messages are stored, want %d", len(messages), 4*pairs)
		}
		for i := 0; i < len(messages); i += 2 {
			if (Codec{}).Text(messages[i]) != (Codec{}).Text(messages[i+1]) {
				torn++
			}
		}
		return torn
	}
	if torn := tornPairs(false); torn != 0 {
		t.Errorf("%d pairs of %d are torn", torn, 2*pairs)
	}
	if tornPairs(true) == 0 {
		t.Error("no pair is torn without the lock: then this test shows nothing")
	}
}

func TestMessageStore_searchesAndClears(t *testing.T) {
	a, b := instances(t, migrated.EmptyRedis(t))
	ctx, other := inSession(t, "s"), inSession(t, "t")
	for i := range 3 {
		must(t, recalls(t, a, false).Save(ctx, schema.NewHumanMessage(fmt.Sprint("apple ", i)), schema.NewAIMessage("pear")))
	}
	must(t, recalls(t, a, false).Save(other, schema.NewHumanMessage("apple of t"), schema.NewAIMessage("pear")))
	found := func(ctx context.Context, query string, k int) (texts []string) {
		messages, err := b.MessageStore().Search(ctx, query, k)
		must(t, err)
		for _, m := range messages {
			texts = append(texts, Codec{}.Text(m))
		}
		return texts
	}
	for _, c := range []struct {
		k    int
		want string
	}{{2, "apple 1,apple 2"}, {9, "apple 0,apple 1,apple 2"}, {0, ""}, {-1, ""}} {
		if got := strings.Join(found(ctx, "APPLE", c.k), ","); got != c.want {
			t.Errorf("the newest %d are %q, want %q", c.k, got, c.want)
		}
	}
	must(t, recalls(t, b, false).Clear(ctx))
	if rest, kept := found(ctx, "", 9), found(other, "", 9); len(rest) != 0 || len(kept) != 2 {
		t.Errorf("after Clear %q is left, and %q in the other session", rest, kept)
	}
	if err := b.MessageStore().Append(context.Background(), schema.NewHumanMessage("lost")); err == nil {
		t.Error("a message without a session was stored")
	}
	must(t, b.Close(t.Context()))
	mustHaveCode(t, second(b.MessageStore().Search(ctx, "apple", 1)), ErrShuttingDown, distlock.ErrClosed)
}
