package belugamemory

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestNew_postgres_sharesConnections(t *testing.T) {
	db := migrated.Database(t, servers.SharedPostgres(t))
	connections := func() int {
		text, err := db.Do("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
		must(t, err)
		n, err := strconv.Atoi(text)
		must(t, err)
		return n - 1 // the connection that asks
	}
	work := func(m *Memory) {
		save(t, inSession(t, "s"), m, "1")
		must(t, m.Turn(inSession(t, "s"), func(ctx context.Context) error { return m.Clear(ctx) }))
	}
	var memories []*Memory
	for range 21 {
		memories = append(memories, open(t, db.URL(), nil))
		work(memories[len(memories)-1])
	}
	if n := connections(); n == 0 || n > 8 {
		t.Errorf("%d connections for 21 memories, want 1 to 8", n)
	}
	for _, m := range memories {
		must(t, m.Close(t.Context()))
	}
	servers.Await(t, 10*time.Second, "the connections are closed", func() bool { return connections() == 0 })
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
		if err == nil || !strings.Contains(err.Error(), "run "+missing) {
			t.Errorf("%v; want the text %q", err, "run "+missing)
		}
		must(t, pglock.Migrate(t.Context(), pool, nil))
	}
}
