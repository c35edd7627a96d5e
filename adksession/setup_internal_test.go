package adksession

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/rediskeys"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// rig is one instance of a service, and a session of it.
type rig struct {
	*Service
	id     id
	ns     string
	client redis.UniversalClient
	locker *distlock.Locker
	faulty *faulty
	db     *servers.PostgresDatabase // of the store; nil: it is in Redis, as the locks are
}

// inPostgres is the database of the stores that newRig makes. nil: they are in Redis.
var inPostgres *servers.PostgresDatabase

// faulty is a store between the service and the real one.
type faulty struct {
	store
	mu   sync.Mutex
	seen []request
	hook func(q request, do func() (reply, error)) (reply, error) // nil: none
}

func (f *faulty) do(ctx context.Context, q request) (reply, error) {
	f.mu.Lock()
	f.seen = append(f.seen, q)
	hook := f.hook
	f.mu.Unlock()
	do := func() (reply, error) { return f.store.do(ctx, q) }
	if hook == nil {
		return do()
	}
	return hook(q, do)
}

// on sets the hook for an operation, for its first n requests. n < 0: for all.
func (f *faulty) on(op operation, n int, hook func(q request, do func() (reply, error)) (reply, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = func(q request, do func() (reply, error)) (reply, error) {
		f.mu.Lock()
		mine := q.operation == op && n != 0
		if mine {
			n--
		}
		f.mu.Unlock()
		if mine {
			return hook(q, do)
		}
		return do()
	}
}

func (f *faulty) count(op operation) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.seen {
		if q.operation == op {
			n++
		}
	}
	return n
}

// loseAnswer sends the request. Its answer is lost.
func loseAnswer(_ request, do func() (reply, error)) (reply, error) {
	_, _ = do()
	return reply{}, io.EOF
}

// namespaces has one for each run of a test.
var namespaces sync.Map

// newRig makes an instance over the shared server, or that of an option, with the Namespace of the test.
func newRig(t testing.TB, options ...any) *rig {
	t.Helper()
	ns, _ := namespaces.LoadOrStore(t, t.Name()+"/"+rand.Text()[:6])
	o, to := Options{Namespace: ns.(string)}, redis.UniversalOptions{Addrs: []string{servers.SharedServer().Addr()}}
	var lock distlock.Options
	var own *servers.PostgresDatabase // with the locks, too
	for _, option := range options {
		switch option := option.(type) {
		case time.Duration:
			lock.TTL = option
		case distlock.Options:
			lock = option
		case interface{ Addr() string }:
			to.Addrs = []string{option.Addr()}
		case redis.UniversalOptions:
			to = option
		case *servers.PostgresDatabase:
			own = option
		case Options:
			option.Namespace = o.Namespace
			o = option
		}
	}
	client := redis.NewUniversalClient(&to)
	lock.Namespace = o.Namespace
	db := cmp.Or(own, inPostgres)
	var locker *distlock.Locker
	var err error
	if own != nil {
		locker, err = pglock.New(t.Context(), connect(t, own.URL()), &pglock.Options{Options: lock})
	} else {
		locker, err = redislock.New(client, &lock)
	}
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = locker.Close(ctx)
		_ = client.Close()
	})
	s, err := NewRedis(client, locker, &o)
	if db != nil {
		s, err = NewPostgres(connect(t, db.URL()), locker, &o)
	}
	must(t, err)
	f := &faulty{store: s.store}
	s.store = f
	return &rig{s, id{"app", "user", "session"}, o.Namespace, client, locker, f, db}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// key is that of a part of the store: "s:", "e:", "a", "u:", "i" or "x".
func (r *rig) key(part string) string {
	key := rediskeys.Prefix(r.ns, r.id.app) + part
	if part == "s:" || part == "e:" {
		key += r.id.member()
	}
	return key
}

// lock is the key of the lock.
func (r *rig) lock() string { return rediskeys.Prefix(r.ns, r.id.key()) + "lock" }

func (r *rig) create(t testing.TB) session.Session {
	t.Helper()
	created, err := r.Create(t.Context(), &session.CreateRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name})
	must(t, err)
	return created.Session
}

func (r *rig) get(ctx context.Context) (session.Session, error) {
	found, err := r.Get(ctx, &session.GetRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name})
	if err != nil {
		return nil, err
	}
	return found.Session, nil
}

func (r *rig) must(t testing.TB, ctx context.Context) session.Session {
	t.Helper()
	found, err := r.get(ctx)
	must(t, err)
	return found
}

func (r *rig) delete(ctx context.Context) error {
	return r.Delete(ctx, &session.DeleteRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name})
}

// under runs fn under the lease of the session.
func (r *rig) under(t testing.TB, fn func(ctx context.Context)) {
	t.Helper()
	must(t, r.locker.Do(t.Context(), r.id.key(), func(ctx context.Context) error { fn(ctx); return nil }))
}

// history is the texts of the stored events.
func (r *rig) history(t testing.TB) (texts []string) {
	t.Helper()
	for e := range r.must(t, context.Background()).Events().All() {
		texts = append(texts, textOf(e))
	}
	return texts
}

func (r *rig) wantHistory(t testing.TB, want ...string) {
	t.Helper()
	if got := r.history(t); !slices.Equal(got, want) {
		t.Errorf("the history is %q, want %q", got, want)
	}
}

func textOf(e *session.Event) (text string) {
	for _, p := range parts(e) {
		text += p.Text
	}
	return text
}

// event is one of a text, with changes of the state: keys and values.
func event(text string, delta ...string) *session.Event {
	e := session.NewEvent(context.Background(), "run")
	e.Author, e.Content = "user", genai.NewContentFromText(text, genai.RoleUser)
	for i := 0; i < len(delta); i += 2 {
		e.Actions.StateDelta[delta[i]] = delta[i+1]
	}
	return e
}

// stored is the number of records of the session, and of keys in the state of its app.
func (r *rig) stored(t testing.TB) (records, keys int64) {
	t.Helper()
	if r.db == nil {
		return r.client.LLen(t.Context(), r.key("e:")).Val(), r.client.HLen(t.Context(), r.key("a")).Val()
	}
	_, err := fmt.Sscan(r.sql(t, `SELECT (SELECT count(*) FROM adk_event WHERE session IN (SELECT id FROM adk_session WHERE name = '%[2]s'
		AND namespace = '%[1]s')) || ' ' || (SELECT count(*) FROM adk_state WHERE scope = 'a' AND namespace = '%[1]s')`,
		r.ns, r.id.name), &records, &keys)
	must(t, err)
	return records, keys
}

// backup keeps the session and its records, and returns what puts them back, as a failover would.
func (r *rig) backup(t testing.TB) (restore func()) {
	t.Helper()
	if r.db != nil {
		old := strings.Split(r.sql(t, "SELECT n, op FROM adk_session WHERE namespace = '%s'", r.ns), "|")
		return func() {
			r.sql(t, `UPDATE adk_session SET n = %[1]s, op = '%[2]s' WHERE namespace = '%[3]s'; DELETE FROM adk_event
				WHERE n >= %[1]s AND session = (SELECT id FROM adk_session WHERE namespace = '%[3]s')`, old[0], old[1], r.ns)
		}
	}
	ctx := context.Background()
	kept := make(map[string]string)
	for _, key := range []string{r.key("s:"), r.key("e:")} {
		kept[key] = r.client.Dump(ctx, key).Val()
	}
	return func() {
		for key, value := range kept {
			if value == "" {
				must(t, r.client.Del(ctx, key).Err())
			} else {
				must(t, r.client.RestoreReplace(ctx, key, 0, value).Err())
			}
		}
	}
}

// fakeModel answers a request.
type fakeModel func(ctx context.Context, req *model.LLMRequest) *genai.Content

func (fakeModel) Name() string { return "fake" }

func (m fakeModel) GenerateContent(ctx context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		content := m(ctx, req)
		if content == nil {
			yield(nil, cmp.Or(ctx.Err(), errors.New("the model fails")))
			return
		}
		yield(&model.LLMResponse{Content: content}, nil)
	}
}

func says(text string) *genai.Content { return genai.NewContentFromText(text, genai.RoleModel) }

// callsOnce calls the tool "look", and answers its response.
func callsOnce(_ context.Context, req *model.LLMRequest) *genai.Content {
	last := req.Contents[len(req.Contents)-1]
	if last.Parts[0].FunctionResponse != nil {
		return says("done")
	}
	return genai.NewContentFromFunctionCall("look", map[string]any{}, genai.RoleModel)
}

type nothing struct{}

func toolOf(t testing.TB, cfg functiontool.Config, run func(agent.Context)) tool.Tool {
	t.Helper()
	cfg.Name, cfg.Description = "look", "looks"
	made, err := functiontool.New(cfg, func(ctx agent.Context, _ nothing) (map[string]any, error) {
		run(ctx)
		return map[string]any{"seen": true}, nil
	})
	must(t, err)
	return made
}

func agentOf(t testing.TB, m fakeModel, tools ...tool.Tool) agent.Agent {
	t.Helper()
	a, err := llmagent.New(llmagent.Config{Name: "agent", Model: m, Tools: tools})
	must(t, err)
	return a
}

// runner makes a Runner of an agent.
func (r *rig) runner(t testing.TB, m fakeModel, tools ...tool.Tool) *Runner {
	t.Helper()
	made, err := r.NewRunner(runner.Config{AppName: r.id.app, Agent: agentOf(t, m, tools...)})
	must(t, err)
	return made
}

// run runs a message, and returns the texts of the events and the errors.
func (r *rig) run(ctx context.Context, by *Runner, message *genai.Content) (texts []string, errs []error) {
	for e, err := range by.Run(ctx, r.id.user, r.id.name, message, agent.RunConfig{}) {
		if err != nil {
			errs = append(errs, err)
		} else {
			texts = append(texts, textOf(e))
		}
	}
	return texts, errs
}

func asks(text string) *genai.Content { return genai.NewContentFromText(text, genai.RoleUser) }
