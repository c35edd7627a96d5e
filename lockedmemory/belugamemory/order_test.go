package belugamemory

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
)

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
		a, b := instances(t, sharedURL(t))
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
	a, b := instances(t, sharedURL(t))
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
	_, err := b.MessageStore().Search(ctx, "apple", 1)
	mustHaveCode(t, err, ErrShuttingDown, distlock.ErrClosed)
}
