package belugamemory

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// counted is a memory.MessageStore with the order of the Redis store of Beluga v2.13.2: a sorted
// set, by a counter of the process.
type counted struct {
	client redis.UniversalClient
	next   atomic.Int64
}

func (c *counted) Append(ctx context.Context, m schema.Message) error {
	text := m.(interface{ Text() string }).Text()
	return c.client.ZAdd(ctx, "counted",
		redis.Z{Score: float64(c.next.Add(1) - 1), Member: string(m.GetRole()) + " " + text}).Err()
}

func (c *counted) All(ctx context.Context) ([]schema.Message, error) {
	members, err := c.client.ZRange(ctx, "counted", 0, -1).Result()
	messages := make([]schema.Message, len(members))
	for i, member := range members {
		_, text, _ := strings.Cut(member, " ")
		messages[i] = schema.NewHumanMessage(text)
	}
	return messages, err
}

func (c *counted) Search(context.Context, string, int) ([]schema.Message, error) { return nil, nil }
func (c *counted) Clear(ctx context.Context) error {
	return c.client.Del(ctx, "counted").Err()
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

// countedInstances returns two instances with a correct lock, and a store that orders by its own
// counter.
func countedInstances(t testing.TB, url string) (a, b *Memory) {
	t.Helper()
	instance := func() *Memory {
		locker, err := lockurl.Open(t.Context(), url, nil)
		must(t, err)
		client, err := redislock.ParseURL(url)
		must(t, err)
		t.Cleanup(func() {
			_ = locker.Close(context.Background())
			_ = client.Close()
		})
		m, err := Wrap(memory.NewRecall(&counted{client: client}), locker, lockedmemory.FixedKey("s"), nil)
		must(t, err)
		return m
	}
	return instance(), instance()
}

// oneAfterTheOther has A save three turns, then B three.
func oneAfterTheOther(t testing.TB, ctx context.Context, a, b *Memory) (got, want string) {
	t.Helper()
	save(t, ctx, a, "A0", "A1", "A2")
	save(t, ctx, b, "B0", "B1", "B2")
	return history(t, ctx, a), "q A0|a A0|q A1|a A1|q A2|a A2|q B0|a B0|q B1|a B1|q B2|a B2"
}

func TestOrder_O_oneInstanceAfterTheOther(t *testing.T) {
	a, b := instances(t, sharedURL(t))
	if got, want := oneAfterTheOther(t, inSession(t, "s"), a, b); got != want {
		t.Errorf("the history is %s, want %s", got, want)
	}
}

// Under the same lock, a store with a counter of the process fails the test above.
func TestOrder_processCounter_misordersUnderLock(t *testing.T) {
	a, b := countedInstances(t, sharedURL(t))
	got, want := oneAfterTheOther(t, inSession(t, "s"), a, b)
	if !strings.HasPrefix(got, "q A0|q B0|a A0|a B0") || got == want {
		t.Errorf("the history is %s: then the test of the order shows nothing", got)
	}
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
