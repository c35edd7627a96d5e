package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestNew_failure_nilMemory(t *testing.T) {
	if mem, err := memory.New(Name, config.ProviderConfig{}); mem != nil || err == nil {
		t.Errorf("%#v, %v", mem, err)
	}
}

func TestNew_sameURL_sharesConnections(t *testing.T) {
	server := servers.StartRedis(t)
	connections := func() int {
		list, err := server.Do("CLIENT", "LIST", "TYPE", "normal")
		must(t, err)
		return strings.Count(list, "\n")
	}
	// The first memories use everything, including the wait.
	work := func(m *Memory) {
		save(t, inSession(t, "s"), m, "1")
		must(t, m.Turn(inSession(t, "s"), func(ctx context.Context) error { return m.Clear(ctx) }))
	}
	work(open(t, server.URL(), nil))
	before := connections()
	for range 20 {
		work(open(t, server.URL(), nil))
	}
	if after := connections(); after > before+2 {
		t.Errorf("%d connections for one memory, %d for 21", before, after)
	}
	plain, window := open(t, server.URL(), nil), open(t, server.URL(), map[string]any{"window": 1, "session_id": "x"})
	if plain.Locker() != window.Locker() {
		t.Error("options of the store alone make another Locker")
	}
	short := open(t, server.URL(), map[string]any{"ttl": "5s"})
	if plain.Locker() == short.Locker() {
		t.Error("another ttl, and the same Locker")
	}
}

// Memories with different settings still share one queue for a session.
func TestNew_otherOptions_excludeEachOther(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		a, b := open(t, url, nil), open(t, url, map[string]any{"ttl": "20s", "wait": "1s"})
		ctx := inSession(t, "s")
		save(t, ctx, a, "1")
		release := hold(t, ctx, a)
		err := b.Save(ctx, schema.NewHumanMessage("q"), schema.NewAIMessage("a"))
		mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
		release()
		save(t, ctx, b, "2")
		holds(t, ctx, a, "q 1|a 1|q 2|a 2")
	})
}

func TestNew_mem_refusesOtherSettings(t *testing.T) {
	open(t, "mem://", map[string]any{"max_exchanges": 3})
	open(t, "mem://", map[string]any{"max_exchanges": 3, "window": 1})
	open(t, "mem://", map[string]any{"namespace": "other"})
	contains(t, refused(t, config.ProviderConfig{BaseURL: "mem://", Options: map[string]any{"max_exchanges": 4}}),
		`"max_exchanges"`, `"namespace"`)
}

// The last Close of a URL releases the leases and closes the connections. Memories of other URLs
// stay open.
func TestClose_isPerMemory(t *testing.T) {
	server := servers.StartRedis(t)
	ctx := inSession(t, "s")
	a, b := open(t, server.URL(), nil), open(t, server.URL(), nil)
	other := open(t, server.URL()+"?client_name=other", nil)
	must(t, a.Close(t.Context()))
	for operation, err := range everyOperation(ctx, a) {
		if !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("%s of the closed memory: %v", operation, err)
		}
	}
	for operation, err := range everyOperation(ctx, b) {
		if err != nil {
			t.Fatalf("%s of the other memory: %v", operation, err)
		}
	}
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { ended <- b.Turn(ctx, func(context.Context) error { close(began); <-end; return nil }) }()
	<-began
	saved := make(chan error, 1)
	go func() { saved <- other.Save(ctx, schema.NewHumanMessage("q"), schema.NewAIMessage("a")) }()
	must(t, b.Close(t.Context()))
	select {
	case err := <-saved:
		must(t, err)
	case <-time.After(3 * time.Second):
		t.Error("3s after Close, another instance still waits")
	}
	close(end)
	if err := <-ended; err == nil {
		t.Error("the Turn whose lease Close has released has no error")
	}
	servers.Await(t, 10*time.Second, "the closed memories' connections are gone", func() bool {
		list, err := server.Do("CLIENT", "LIST", "TYPE", "normal")
		// the connection that asks, and those of the other memory
		return err == nil && strings.Count(list, "\n") == 1+strings.Count(list, "name=other")
	})
}

func TestClose_hangingServer_endsWithContext(t *testing.T) {
	server := servers.StartRedis(t)
	m := open(t, server.URL(), map[string]any{"ttl": "1s"})
	hold(t, inSession(t, "s"), m)
	server.Pause()
	defer server.Resume()
	limited, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := m.Close(limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
}

func TestMemory_lifecycle(t *testing.T) {
	server := servers.StartRedis(t)
	wrapped := ofOne(t, failing{})
	for name, m := range map[string]*Memory{"New": open(t, server.URL(), nil), "Wrap": wrapped} {
		if health := m.Health(); m.Start(t.Context()) != nil || health.Status != core.HealthHealthy ||
			time.Since(health.Timestamp) > time.Minute {
			t.Errorf("%s: Start: %v, Health: %+v", name, m.Start(t.Context()), health)
		}
		if name == "New" {
			server.Kill()
			mustHaveCode(t, m.Start(t.Context()), core.ErrProviderDown, distlock.ErrUnavailable)
		}
		must(t, m.Stop(t.Context()))
		mustHaveCode(t, m.Start(t.Context()), ErrShuttingDown, distlock.ErrClosed)
		if health := m.Health(); health.Status != core.HealthUnhealthy || health.Message == "" {
			t.Errorf("%s: after Stop, Health: %+v", name, health)
		}
	}
	if _, err := wrapped.Locker().Inspect(t.Context(), "s"); err != nil {
		t.Error("the Locker was not the memory's to close:", err)
	}
}

func TestClose_laterCallsFail(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		ctx := inSession(t, "s")
		m := open(t, url, nil)
		save(t, ctx, m, "1")
		must(t, m.Close(t.Context()))
		if err := m.Close(t.Context()); err != nil {
			t.Error("Close again:", err)
		}
		for operation, err := range everyOperation(ctx, m) {
			t.Run(operation, func(t *testing.T) {
				mustHaveCode(t, err, ErrShuttingDown, distlock.ErrClosed)
				if core.IsRetryable(err) {
					t.Error("retryable")
				}
			})
		}
		again := open(t, url, nil)
		save(t, ctx, again, "2")
		want := "q 1|a 1|q 2|a 2"
		if url == "mem://" { // whose sessions end with it
			want = "q 2|a 2"
		}
		holds(t, ctx, again, want)
	})
}

func everyOperation(ctx context.Context, m *Memory) map[string]error {
	errs := map[string]error{
		"Save":  m.Save(ctx, schema.NewHumanMessage("q"), schema.NewAIMessage("a")),
		"Clear": m.Clear(ctx),
		"Turn":  m.Turn(ctx, func(context.Context) error { return nil }),
	}
	_, errs["Load"] = m.Load(ctx, "")
	_, errs["Search"] = m.Search(ctx, "q", 1)
	return errs
}

func TestClose_concurrentWithNewIsSafe(t *testing.T) {
	url := migrated.EmptyRedis(t) + "?client_name=concurrent"
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 10 {
				m, err := New(config.ProviderConfig{BaseURL: []string{url, "mem://"}[i%2]})
				if err == nil {
					err = m.Save(inSession(t, fmt.Sprint("s", i)), schema.NewHumanMessage("q"), schema.NewAIMessage("a"))
					err = errors.Join(err, m.Close(t.Context()))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	holds(t, inSession(t, "s1"), open(t, "mem://", nil), "")
	servers.Await(t, 10*time.Second, "all connections are gone", func() bool {
		list, err := servers.SharedServer().Do("CLIENT", "LIST")
		return err == nil && !strings.Contains(list, "name=concurrent")
	})
}

// With the option store, one server has the locks and another one the sessions.
func TestNew_store_serverOfItsOwn(t *testing.T) {
	locks, sessions := servers.StartRedis(t), servers.StartRedis(t)
	keys := func(server *servers.Redis) string {
		list, err := server.Do("KEYS", "*")
		must(t, err)
		return list
	}
	m := open(t, locks.URL(), map[string]any{"store": sessions.URL()})
	must(t, m.Turn(inSession(t, "s"), func(ctx context.Context) error {
		save(t, ctx, m, "1")
		if got := keys(locks); !strings.HasPrefix(got, "distlock:") || strings.Contains(got, "session:") {
			t.Errorf("the server of the locks has the keys %q", got)
		}
		return nil
	}))
	if got := keys(sessions); !strings.Contains(got, "session:{s}") || strings.Contains(got, "distlock:") {
		t.Errorf("the server of the sessions has the keys %q", got)
	}
	reader := open(t, sessions.URL(), nil)
	holds(t, inSession(t, "s"), reader, "q 1|a 1")
	must(t, reader.Close(t.Context()))

	must(t, m.Close(t.Context()))
	left := func(what string, server *servers.Redis) {
		servers.Await(t, 10*time.Second, what, func() bool {
			list, err := server.Do("CLIENT", "LIST")
			return err == nil && strings.Count(list, "\n") == 1 // the connection that asks
		})
	}
	left("after Close, the connections to the locks are gone", locks)
	left("and those to the sessions", sessions)
	both := open(t, locks.URL(), map[string]any{"store": locks.URL()})
	save(t, inSession(t, "s"), both, "2")
	must(t, both.Close(t.Context()))
	left("also with the same server as store", locks)

	sessions.Pause()
	defer sessions.Resume()
	_, err := New(config.ProviderConfig{BaseURL: locks.URL(), Timeout: time.Second,
		Options: map[string]any{"store": sessions.URL()}})
	mustHaveCode(t, err, core.ErrProviderDown, distlock.ErrUnavailable)
	contains(t, fmt.Sprint(err), `option "store": `)
	left("after a New that failed, the connections to the locks are gone", locks)
}

// The locks are on a quorum with a dead node, and the sessions in one database.
func TestNew_Redlock3_locksOnAQuorum(t *testing.T) {
	q, db := servers.StartQuorum(t, 3), migrated.Database(t, servers.SharedPostgres(t))
	q.Nodes()[0].Kill()
	m := open(t, q.URL()+"?restart_delay=-1s", map[string]any{"store": db.URL()})
	ctx := inSession(t, "s")
	must(t, m.Turn(ctx, func(ctx context.Context) error {
		save(t, ctx, m, "1")
		return nil
	}))
	save(t, ctx, m, "2")
	holds(t, ctx, m, "q 1|a 1|q 2|a 2")
}

// A quorum keeps locks alone. The error says what to set, and comes before a request.
func TestNew_quorum_needsAStore(t *testing.T) {
	const url = "redlock+redis://u:s3cret@192.0.2.1,192.0.2.2,192.0.2.3"
	text := refused(t, config.ProviderConfig{BaseURL: url})
	if contains(t, text, `the option "store"`); strings.Contains(text, "s3cret") {
		t.Error(text)
	}
}

// New fails where only a part of the schema, or nothing, is installed. The error names the call to run.
func TestNew_postgres_withoutSchema_isRefused(t *testing.T) {
	db := servers.SharedPostgres(t).NewDatabase(t)
	pool, err := pgxpool.New(t.Context(), db.URL())
	must(t, err)
	defer pool.Close()
	for _, missing := range []string{"pglock.Migrate", "pgstore.Migrate"} {
		_, err := New(config.ProviderConfig{BaseURL: db.URL()})
		mustHaveCode(t, err, core.ErrProviderDown, distlock.ErrRefused)
		contains(t, fmt.Sprint(err), "run "+missing)
		must(t, pglock.Migrate(t.Context(), pool, nil))
	}
}
