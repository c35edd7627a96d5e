package belugamemory

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
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
		m, err := Wrap(memory.NewRecall(&counted{client: client}), locker, WithSessionID("s"))
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
