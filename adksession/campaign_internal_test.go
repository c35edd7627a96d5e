package adksession

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// worker is one process of the campaign. It runs questions in random sessions until it is told to end.
type worker struct {
	Addr, Namespace  string // the address of a Redis, or the URL of a PostgreSQL
	Number, Sessions int
}

// answer is a run that a worker has seen to its end.
type answer struct {
	Session, Worker, N int
}

func (a answer) question() string { return fmt.Sprintf("%d/%d", a.Worker, a.N) }

// countContents answers how many events the model was shown.
func countContents(_ context.Context, req *model.LLMRequest) *genai.Content {
	return says(fmt.Sprint(len(req.Contents)))
}

func (w worker) open(ctx context.Context) (*Service, error) {
	lock, opts := distlock.Options{Namespace: w.Namespace, TTL: 2 * time.Second}, &Options{Namespace: w.Namespace}
	if !strings.HasPrefix(w.Addr, "postgres://") {
		client := redis.NewClient(&redis.Options{Addr: w.Addr})
		locker, err := redislock.New(client, &lock)
		if err != nil {
			return nil, err
		}
		return NewRedis(client, locker, opts)
	}
	pool, err := pgxpool.New(ctx, w.Addr)
	if err != nil {
		return nil, err
	}
	locker, err := pglock.New(ctx, pool, &pglock.Options{Options: lock})
	if err != nil {
		return nil, err
	}
	return NewPostgres(pool, locker, opts)
}

func (w worker) run(ctx context.Context, parent *child.Line) error {
	s, err := w.open(ctx)
	if err != nil {
		return err
	}
	counts, err := llmagent.New(llmagent.Config{Name: "agent", Model: fakeModel(countContents)})
	if err != nil {
		return err
	}
	by, err := s.NewRunner(runner.Config{AppName: "app", Agent: counts, AutoCreateSession: true})
	if err != nil {
		return err
	}
	for a := (answer{Worker: w.Number}); ctx.Err() == nil; {
		a.N++
		a.Session = rand.N(w.Sessions)
		whole := true
		delta := map[string]any{fmt.Sprintf("user:%d", w.Number): a.N}
		for _, err := range by.Run(ctx, "user", fmt.Sprint(a.Session), asks(a.question()), agent.RunConfig{}, runner.WithStateDelta(delta)) {
			whole = whole && err == nil
		}
		if whole {
			if err := parent.Send(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// Processes answer in common sessions. Some are killed, some are paused for longer than the TTL.
func TestCampaign(t *testing.T) {
	t.Run("redis", func(t *testing.T) { newRig(t).campaign(t, servers.SharedServer().Addr()) })
	t.Run("postgres", func(t *testing.T) {
		db := database(t)
		newRig(t, db).campaign(t, db.URL())
	})
}

func (r *rig) campaign(t *testing.T, addr string) {
	const workers, sessions, rounds = 4, 3, 4
	var mu sync.Mutex
	var answers []answer
	var readers sync.WaitGroup
	children, started := make([]*child.Child, workers), 0
	start := func(i int) {
		started++
		c, err := child.StartRole(t.Context(), "worker", worker{addr, r.ns, started, sessions}, os.Stderr)
		must(t, err)
		children[i] = c
		readers.Go(func() {
			for a := (answer{}); c.Receive(&a) == nil; {
				mu.Lock()
				answers = append(answers, a)
				mu.Unlock()
			}
		})
	}
	for i := range children {
		start(i)
	}
	for round := range rounds {
		mu.Lock()
		before := len(answers)
		mu.Unlock()
		paused, killed := children[round%workers], (round+1)%workers
		must(t, paused.Pause())
		servers.Await(t, 30*time.Second, "answers in each session, beside a paused process", func() bool {
			mu.Lock()
			defer mu.Unlock()
			seen := make(map[int]int)
			for _, a := range answers[before:] {
				seen[a.Session]++
			}
			return min(seen[0], seen[1], seen[2]) >= 5
		})
		must(t, paused.Continue())
		children[killed].Kill()
		must(t, children[killed].Close())
		start(killed)
	}
	for _, c := range children {
		c.Stop()
		<-c.Done()
		must(t, c.Err())
	}
	readers.Wait()
	for _, c := range children {
		must(t, c.Close())
	}
	t.Logf("%d answers", len(answers))
	last := make(map[int]int)
	for _, a := range answers {
		last[a.Worker] = max(last[a.Worker], a.N)
	}
	var state session.State
	for i := range sessions {
		r.id.name = fmt.Sprint(i)
		state = r.must(t, t.Context()).State()
		r.judge(t, i, answers)
	}
	for number, n := range last { // an answer without an acknowledgement may have come later
		if v, err := state.Get(fmt.Sprintf("user:%d", number)); err != nil || v.(float64) < float64(n) {
			t.Errorf("worker %d has acknowledged %d, the state has %v, %v", number, n, v, err)
		}
	}
}

func (r *rig) records(t *testing.T) []string {
	t.Helper()
	if r.db == nil {
		return r.client.LRange(t.Context(), r.key("e:"), 0, -1).Val()
	}
	return strings.Split(r.sql(t, `SELECT event FROM adk_event WHERE session = (SELECT id FROM adk_session WHERE namespace = '%s'
		AND name = '%s') ORDER BY n`, r.ns, r.id.name), "\n")
}

// judge checks the records of a session: the events of a run stand together, a model has seen all that stands
// before its answer, and each acknowledged answer is there once.
func (r *rig) judge(t *testing.T, i int, answers []answer) {
	t.Helper()
	var token int64
	var questions []string
	answered := make(map[string]int)
	for n, text := range r.records(t) {
		var record struct {
			T int64
			E session.Event
		}
		must(t, json.Unmarshal([]byte(text), &record))
		if record.T < token {
			t.Errorf("session %d: event %d has token %d after %d", i, n, record.T, token)
		}
		if said := textOf(&record.E); record.E.Author == "user" {
			questions = append(questions, said)
		} else if answered[questions[len(questions)-1]]++; said != fmt.Sprint(n) || record.T != token {
			t.Errorf("session %d: the model saw %s of %d events; the question has token %d, the answer %d", i, said, n, token, record.T)
		}
		token = record.T
	}
	for _, a := range answers {
		if a.Session == i && answered[a.question()] != 1 {
			t.Errorf("session %d has %d answers to %s", i, answered[a.question()], a.question())
		}
	}
}
