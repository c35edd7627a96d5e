package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// calls returns how often clients have sent a command to a server.
func calls(t *testing.T, server *servers.Redis, command string) int {
	t.Helper()
	stats, err := server.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(stats)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func TestAgent_storeOfItsOwn_hasHistoriesAlone(t *testing.T) {
	t.Parallel()
	locks, histories, db := servers.StartRedis(t), servers.StartRedis(t), servers.StartPostgres(t).NewDatabase(t)
	for name, args := range map[string][]string{
		"locks on Redis, histories on another one": {"-lock", locks.URL(), "-store", histories.URL()},
		"locks on PostgreSQL, histories on Redis":  {"-lock", db.URL(), "-store", histories.URL()},
		"locks on Redis, histories on PostgreSQL":  {"-lock", locks.URL(), "-store", db.URL()},
		"locks embedded, histories on Redis":       {"-store", histories.URL()},
	} {
		for _, server := range []*servers.Redis{locks, histories} {
			if _, err := server.Do("CONFIG", "RESETSTAT"); err != nil {
				t.Fatal(err)
			}
		}
		checkReport(t, finish(t, program(t, append(args, "-turns", "8", "-sessions", "2")...)), 2*8)
		for server, want := range map[*servers.Redis][2]bool{
			locks:     {strings.HasPrefix(name, "locks on Redis"), false},
			histories: {false, strings.Contains(name, "histories on Redis") || strings.Contains(name, "histories on another")},
		} {
			// Locks alone need GETEX, and histories alone XADD and RPUSH.
			if got := [2]bool{calls(t, server, "getex") > 0, calls(t, server, "xadd") > 0 && calls(t, server, "rpush") > 0}; got != want {
				t.Errorf("%s: a server has had locks, histories: %v, want %v", name, got, want)
			}
			if keys, err := server.Do("KEYS", "*"); keys != "" || err != nil {
				t.Errorf("%s: keys are left: %q, error %v", name, keys, err)
			}
		}
		if left, err := db.Do(`SELECT nspname FROM pg_namespace WHERE nspname ~ 'agent'`); left != "" || err != nil {
			t.Errorf("%s: schemas are left: %q, error %v", name, left, err)
		}
	}
}

// The run goes on while one of three nodes is dead.
func TestAgent_Redlock3_leavesNothingOnAQuorum(t *testing.T) {
	t.Parallel()
	q, histories := servers.StartQuorum(t, 3), servers.StartRedis(t)
	q.Nodes()[0].Kill()
	url := q.URL() + "?restart_delay=-1s"
	checkReport(t, finish(t, program(t, "-lock", url, "-store", histories.URL(), "-turns", "20", "-sessions", "2")), 2*20)
	for _, server := range append(q.Nodes()[1:], histories) {
		if keys, err := server.Do("KEYS", "*"); keys != "" || err != nil {
			t.Errorf("keys are left: %q, error %v", keys, err)
		}
	}
}

func TestConfig_aboutServers(t *testing.T) {
	const url, own = "redlock+redis://a,b,c", "on a Redis, embedded in the program"
	for _, test := range []struct{ lock, store, locks, histories, flags string }{
		{"", "", own, "on the same server", ""},
		{"redis://a", "", "on the server at -lock", "on the same server", " -lock URL"},
		{"redis://a", "redis://a", "on the server at -lock", "on the same server", " -lock URL"},
		{"", "redis://a", own, "on the server at -store", " -store URL"},
		{"redlock", "", "on a quorum of three Redis nodes, embedded in the program", own, " -lock redlock"},
		{url, "", "on the quorum at -lock", own, " -lock URL"},
		{url, "redis://a", "on the quorum at -lock", "on the server at -store", " -lock URL -store URL"},
	} {
		locks, histories, flags := config{Lock: test.lock, Store: test.store}.about()
		if locks != test.locks || histories != test.histories || flags != test.flags {
			t.Errorf("-lock %q -store %q: locks %s, histories %s, flags%s", test.lock, test.store, locks, histories, flags)
		}
	}
}

// works reports whether instances have written to a server.
func works(server *servers.Redis) bool {
	keys, err := server.Do("KEYS", "agent-*")
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
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("error %v, and there are %v", err, files)
	}
}

func TestAgent_saysThatAServerCannotBeReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	address := server.Listener.Addr().String()
	server.Close() // no server listens there now
	for url, want := range map[string]string{
		"redis://:s3cret@" + address:                             "agent: no answer from Redis: ",
		"postgres://u:s3cret@" + address + "/db?sslmode=disable": "agent: no answer from PostgreSQL: ",
	} {
		got := finish(t, program(t, "-lock", url))
		if got.code != 1 || !strings.HasPrefix(got.stderr, want) || !strings.Contains(got.stderr, address) ||
			!strings.Contains(got.stderr, "refused") || strings.Contains(got.stderr, "s3cret") || strings.Count(got.stderr, "\n") > 3 {
			t.Errorf("exit code %d, want 1, the cause, and no password", got.code)
		}
	}
}
