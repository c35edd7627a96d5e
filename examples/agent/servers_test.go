package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestAgent_onARealServer_leavesNothing(t *testing.T) {
	t.Parallel()
	redis, db := servers.StartRedis(t), servers.StartPostgres(t).NewDatabase(t)
	for _, url := range []string{redis.URL(), db.URL()} {
		checkReport(t, finish(t, program(t, "-lock", url, "-turns", "8", "-sessions", "2")), 2*8)
	}
	if stats, err := redis.Do("INFO", "commandstats"); err != nil || !strings.Contains(stats, "cmdstat_xadd") {
		t.Errorf("the Redis has had no history; error %v", err)
	}
	if keys, err := redis.Do("KEYS", "*"); keys != "" || err != nil {
		t.Errorf("keys are left: %q, error %v", keys, err)
	}
	if left, err := db.Do(`SELECT nspname FROM pg_namespace WHERE nspname ~ 'agent'`); left != "" || err != nil {
		t.Errorf("schemas are left: %q, error %v", left, err)
	}
}

// works reports whether instances have written to a server.
func works(server *servers.Redis) bool {
	keys, err := server.Do("KEYS", "agent_*")
	return err == nil && keys != ""
}

func TestAgent_saysThatRedisWentAwayAndLeavesTheLastPage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.html")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := servers.StartRedis(t)
	cmd := program(t, "-lock", server.URL(), "-turns", "10000", "-report", path)
	go func() {
		servers.Within(20*time.Second, func() bool { return works(server) })
		server.Kill()
	}()
	if got := finish(t, cmd); got.code != 1 || !strings.Contains(got.stderr, "agent: instance-") || !strings.Contains(got.stderr, "refused") {
		t.Errorf("exit code %d, want 1 and the cause", got.code)
	}
	if page, err := os.ReadFile(path); err != nil || string(page) != "before" {
		t.Errorf("error %v, the file has %q", err, page)
	}
}

func TestAgent_saysThatAServerCannotBeReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	address := server.Listener.Addr().String()
	server.Close() // no server listens there now
	for url, want := range map[string]string{
		"redis://:s3cret@" + address:                             "agent: no answer from Redis: ",
		"postgres://u:s3cret@" + address + "/db?sslmode=disable": "agent: prepare a schema in PostgreSQL: ",
	} {
		got := finish(t, program(t, "-lock", url))
		if got.code != 1 || !strings.HasPrefix(got.stderr, want) || !strings.Contains(got.stderr, address) ||
			!strings.Contains(got.stderr, "refused") || strings.Contains(got.stderr, "s3cret") || strings.Count(got.stderr, "\n") > 3 {
			t.Errorf("exit code %d, want 1, the cause, and no password", got.code)
		}
	}
}
