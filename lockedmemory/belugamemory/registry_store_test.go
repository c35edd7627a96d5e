package belugamemory

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// With the option store, one server has the locks and another one the sessions.
func TestNew_store_serverOfItsOwn(t *testing.T) {
	locks, sessions := servers.StartRedis(t), servers.StartRedis(t)
	keys := func(server *servers.Redis) string {
		list, err := server.Do("KEYS", "*")
		must(t, err)
		return list
	}
	m := open(t, locks.URL(), map[string]any{"store": sessions.URL()})
	err := m.Turn(inSession(t, "s"), func(ctx context.Context) error {
		save(t, ctx, m, "1")
		if got := keys(locks); !strings.HasPrefix(got, "distlock:") || strings.Contains(got, "session:") {
			t.Errorf("the server of the locks has the keys %q", got)
		}
		return nil
	})
	must(t, err)
	if got := keys(sessions); !strings.Contains(got, "session:{s}") || strings.Contains(got, "distlock:") {
		t.Errorf("the server of the sessions has the keys %q", got)
	}
	reader := open(t, sessions.URL(), nil)
	if got := history(t, inSession(t, "s"), reader); got != "q 1|a 1" {
		t.Errorf("another memory loads %q", got)
	}
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
	_, err = New(config.ProviderConfig{BaseURL: locks.URL(), Timeout: time.Second,
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
	err := m.Turn(ctx, func(ctx context.Context) error {
		save(t, ctx, m, "1")
		return nil
	})
	must(t, err)
	save(t, ctx, m, "2")
	if got := history(t, ctx, m); got != "q 1|a 1|q 2|a 2" {
		t.Errorf("Load: %s", got)
	}
}

// A quorum keeps locks alone. The error says what to set, and comes before a request.
func TestNew_quorum_needsAStore(t *testing.T) {
	const url = "redlock+redis://u:s3cret@192.0.2.1,192.0.2.2,192.0.2.3"
	text := refused(t, config.ProviderConfig{BaseURL: url})
	if contains(t, text, `the option "store"`); strings.Contains(text, "s3cret") {
		t.Error(text)
	}
}
