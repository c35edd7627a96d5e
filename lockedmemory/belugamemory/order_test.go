package belugamemory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/lockurl"
)

// counted is a memory.MessageStore that orders as the Redis store of Beluga v2.13.2 does: a sorted set, by a counter of the process.
type counted struct {
	client redis.UniversalClient
	next   atomic.Int64
}

func (c *counted) Append(ctx context.Context, m schema.Message) error {
	text := m.(interface{ Text() string }).Text()
	return c.client.ZAdd(ctx, "counted", redis.Z{Score: float64(c.next.Add(1) - 1), Member: string(m.GetRole()) + " " + text}).Err()
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
func (c *counted) Clear(ctx context.Context) error                               { return c.client.Del(ctx, "counted").Err() }

// instances are two that share nothing but the server.
func instances(t testing.TB, url string) (a, b *Memory) {
	t.Helper()
	a, b = open(t, url+"?client_name=a", nil), open(t, url+"?client_name=b", nil)
	if a.Locker() == b.Locker() {
		t.Fatal("they share a Locker")
	}
	return a, b
}

// countedInstances are two with a perfect lock, and a store that orders by a counter of its own.
func countedInstances(t testing.TB, url string) (a, b *Memory) {
	t.Helper()
	instance := func() *Memory {
		locker, err := lockurl.Open(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		client, err := lockurl.NewRedisClient(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = locker.Close(context.Background())
			_ = client.Close()
		})
		m, err := Wrap(memory.NewRecall(&counted{client: client}), locker)
		if err != nil {
			t.Fatal(err)
		}
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

// The same that the store above passes is too much for one that counts in the process, under the same lock.
func TestOrder_aCounterOfTheProcessMisordersUnderAPerfectLock(t *testing.T) {
	a, b := countedInstances(t, sharedURL(t))
	got, want := oneAfterTheOther(t, inSession(t, "s"), a, b)
	if !strings.HasPrefix(got, "q A0|q B0|a A0|a B0") || got == want {
		t.Errorf("the history is %s: then the test of the order shows nothing", got)
	}
}

func TestOrder_O_turnByTurn(t *testing.T) {
	a, b := instances(t, sharedURL(t))
	ctx := inSession(t, "s")
	var want []string
	for i := range 10 {
		for _, instance := range []*Memory{a, b} {
			text := fmt.Sprint(i, instance == a)
			err := instance.Turn(ctx, func(ctx context.Context) error {
				if got := history(t, ctx, instance); got != strings.Join(want, "|") {
					t.Errorf("before turn %s, the history is %s", text, got)
				}
				save(t, ctx, instance, text)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, "q "+text, "a "+text)
		}
	}
}

// Each turn writes down how many it has found, so that a lost or a late one shows.
func TestOrder_O_concurrentTurnsStandInTheOrderOfTheirLeases(t *testing.T) {
	a, b := instances(t, sharedURL(t))
	ctx := inSession(t, "s")
	const workers, turns = 4, 10
	var wg sync.WaitGroup
	for worker := range workers {
		instance := []*Memory{a, b}[worker%2]
		wg.Go(func() {
			for range turns {
				err := instance.Turn(ctx, func(ctx context.Context) error {
					messages, err := instance.Load(ctx, "")
					if err != nil {
						return err
					}
					text := fmt.Sprint(len(messages) / 2)
					return instance.Save(ctx, schema.NewHumanMessage("q "+text), schema.NewAIMessage("a "+text))
				})
				if err != nil {
					t.Errorf("Turn: %v", err)
				}
			}
		})
	}
	wg.Wait()
	var want []string
	for i := range workers * turns {
		want = append(want, fmt.Sprint("q ", i), fmt.Sprint("a ", i))
	}
	if got := strings.Split(history(t, ctx, a), "|"); !slices.Equal(got, want) {
		t.Errorf("the history is %s", got)
	}
}

// Without turns, pairs stay together, and each instance's own come in its order.
func TestOrder_O_concurrentSavesKeepTheirPairs(t *testing.T) {
	a, b := instances(t, sharedURL(t))
	ctx := inSession(t, "s")
	var wg sync.WaitGroup
	const n = 40
	for name, instance := range map[string]*Memory{"A": a, "B": b} {
		wg.Go(func() {
			for i := range n {
				text := fmt.Sprintf("%s%03d", name, i)
				if err := instance.Save(ctx, schema.NewHumanMessage("q "+text), schema.NewAIMessage("a "+text)); err != nil {
					t.Errorf("Save: %v", err)
				}
			}
		})
	}
	wg.Wait()
	got := strings.Split(history(t, ctx, b), "|")
	if len(got) != 2*2*n {
		t.Fatalf("%d messages, want %d", len(got), 2*2*n)
	}
	last := map[byte]string{}
	for i := 0; i < len(got); i += 2 {
		if got[i][0] != 'q' || got[i+1] != "a"+got[i][1:] {
			t.Errorf("at %d: %s, %s", i, got[i], got[i+1])
		}
		who := got[i][2]
		if got[i] <= last[who] {
			t.Errorf("%s comes after %s", got[i], last[who])
		}
		last[who] = got[i]
	}
}
