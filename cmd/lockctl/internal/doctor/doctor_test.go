package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(testservers.Sharing{M: m}) }

// finds examines a service, and wants these findings above the level Note, in this order: "level check".
func finds(t *testing.T, lockURL, storeURL string, want ...string) []Finding {
	t.Helper()
	findings, err := Examine(t.Context(), lockURL, storeURL)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range findings {
		if f.Found == "" || f.Level != OK && (f.Means == "" || f.Do == "") {
			t.Errorf("a finding lacks a part: %+v", f)
		}
		if f.Level == Warning || f.Level == Problem {
			got = append(got, string(f.Level)+" "+f.Check)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q:\n%+v", lockURL, got, want, findings)
	}
	return findings
}

// shows wants a finding that a text is part of.
func shows(t *testing.T, findings []Finding, level Level, check, text string) {
	t.Helper()
	for _, f := range findings {
		if f.Level == level && f.Check == check && strings.Contains(f.Found+" "+f.Means+" "+f.Do, text) {
			return
		}
	}
	t.Errorf("no %s %q shows %q: %+v", level, check, text, findings)
}

func do(t *testing.T, r *testservers.Redis, args ...string) {
	t.Helper()
	if _, err := r.Do(args...); err != nil {
		t.Fatalf("%s: %v", args, err)
	}
}

func open(t *testing.T, url string) *distlock.Locker {
	t.Helper()
	locker, err := lockurl.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })
	return locker
}

func TestExamine_badURL(t *testing.T) {
	for _, urls := range [][2]string{
		{"", ""}, {"mem://", ""}, {"http://h", ""}, {"redis://h:port", ""}, {"redlock+redis://", ""}, {"postgres://h:port/db", ""},
		{"redis+sentinel://h", ""}, {"redis://h/0?ttl=0s", ""}, {"redis://127.0.0.1:1", "redlock+redis://h"}, {"postgres://u:s3cret@@h", ""},
	} {
		if _, err := Examine(t.Context(), urls[0], urls[1]); !errors.Is(err, distlock.ErrInvalidOption) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", urls, err)
		}
	}
}

// judged returns the level of a check.
func judged(s *server, rules []rule, check string) Finding {
	var r report
	r.judge(s, rules, func(each string) bool { return each == check })
	if len(r.findings) == 0 {
		return Finding{}
	}
	return r.findings[0]
}

// Checks whose cause cannot be made here are tested on answers of a server.
func TestChecks_answersOfServers(t *testing.T) {
	for name, c := range map[string]struct {
		check, info string
		want        Level
	}{
		"version 5":          {"version", "redis_version:5.0.14", Problem},
		"version 6.0":        {"version", "redis_version:6.0.16", Problem},
		"version 6.2":        {"version", "redis_version:6.2.0", OK},
		"version 10":         {"version", "redis_version:10.0.1", OK},
		"disk full":          {"persistence", "aof_enabled:1\naof_last_write_status:err", Problem},
		"snapshot failed":    {"persistence", "aof_enabled:1\nrdb_last_bgsave_status:err", Problem},
		"machine full":       {"memory", "used_memory:90\ntotal_system_memory:100", Warning},
		"many clients":       {"connections", "connected_clients:95\nmaxclients:100", Warning},
		"lost replica":       {"role", "role:slave\nmaster_link_status:down", Warning},
		"one replica":        {"replicas", "role:master\nconnected_slaves:1", Note},
		"no replica":         {"replicas", "role:master\nconnected_slaves:0", Warning},
		"INFO refused, role": {"role", "", ""},
	} {
		s := &redisServer{server: server{topology: sentinel}}
		s.learn(c.info, map[string]string{"min-replicas-to-write": "0"})
		if got := judged(&s.server, redisRules, c.check); got.Level != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	s := &redisServer{server: server{topology: quorum}}
	s.learn("role:master\nconnected_slaves:1", nil)
	if got := judged(&s.server, redisRules, "replicas"); got.Level != Warning {
		t.Errorf("a replica of a node of a quorum: %+v", got)
	}
	here, ahead := &redisServer{server: server{name: "a"}}, &redisServer{server: server{name: "b"}, offset: 3 * slow}
	if got := clocks([]*redisServer{here, ahead}); got.Level != Warning || !strings.Contains(got.Found, "b is 3s ahead of a") {
		t.Errorf("clocks: %+v", got)
	}
	if got := clock(ahead.offset, ahead.took); got.Level != Warning {
		t.Errorf("clock: %+v", got)
	}
	for fact, want := range map[string]struct {
		check, value, found string
		level               Level
	}{
		"server_version_num":            {"version", "130012", "PostgreSQL unknown", Problem},
		"fsync":                         {"durability", "off", "fsync off", Problem},
		"full_page_writes":              {"durability", "off", "full_page_writes off", Warning},
		"autovacuum":                    {"durability", "off", "autovacuum off", Warning},
		"synchronous_commit":            {"durability", "off", "synchronous_commit off", Note},
		"idle_session_timeout":          {"timeouts", "5000", "idle_session_timeout 5000 ms", Warning},
		"transaction_timeout":           {"timeouts", "2999", "transaction_timeout 2999 ms", Warning},
		"standbys":                      {"standbys", "2", "2 standbys, none of them synchronous", Note},
		"hidden":                        {"transactions", "2", "2 connections of other roles are hidden", Note},
		"enough":                        {"connections", "false", "unknown of unknown connections", Warning},
		"part_version":                  {"schema", "0", `the part "unknown" is missing in the schema "unknown"`, Problem},
		"default_transaction_read_only": {"role", "on", "default_transaction_read_only on", Problem},
	} {
		s := &server{facts: map[string]string{fact: want.value}}
		if got := judged(s, postgresRules, want.check); got.Level != want.level || got.Found != want.found {
			t.Errorf("%s: %+v", fact, got)
		}
	}
}

// The advice passes the check: the time before a failover, the election and a second are below the TTL.
func TestFailover_adviceIsNoFinding(t *testing.T) {
	for _, c := range []struct {
		down int64
		ttl  time.Duration
		want string // "" is no finding
	}{
		{5000, 30 * time.Second, ""}, {18900, 30 * time.Second, ""}, {2000, 5 * time.Second, ""},
		{30000, 30 * time.Second, "Set down to 5000, or raise the TTL above 46.5s."},
		{19000, 30 * time.Second, "Set down to 5000, or raise the TTL above 30s."},
		{4000, 5 * time.Second, "Set down to 2300, or raise the TTL above 7.5s."},
		{4000, 4 * time.Second, "Raise the TTL above 7.5s."},
		{1000, time.Second, "Raise the TTL above 3s."},
		{900, 3 * time.Second, ""}, {900, 2 * time.Second, "Raise the TTL above 2.9s."},
	} {
		got := failover("down", c.down, c.ttl)
		if got.Do != c.want || (got.Level == OK) != (c.want == "") {
			t.Errorf("%d ms, TTL %v: %+v, want %q", c.down, c.ttl, got, c.want)
		}
		if _, text, advises := strings.Cut(got.Do, "TTL above "); advises {
			ttl, err := time.ParseDuration(strings.TrimSuffix(text, "."))
			if err != nil || failover("down", c.down, ttl+100*time.Millisecond).Level != OK {
				t.Errorf("%d ms: the advice %q is a finding itself, %v", c.down, got.Do, err)
			}
		}
		var down int64
		if n, _ := fmt.Sscanf(got.Do, "Set down to %d", &down); n == 1 {
			taken := time.Duration(down)*time.Millisecond + 2*time.Second
			if failover("down", down, c.ttl).Level != OK || taken >= c.ttl {
				t.Errorf("TTL %v: the advice %q is a finding itself", c.ttl, got.Do)
			}
		}
	}
}

// The tries are those of the rights that the packages document.
func TestRights_documented(t *testing.T) {
	const root = "../../../../"
	lock := testservers.DocumentedRights(t, root+"distlock/redislock/doc.go")
	quorumLock := testservers.DocumentedRights(t, root+"distlock/redlock/doc.go")
	store := testservers.DocumentedRights(t, root+"lockedmemory/sessionstore/redisstore/doc.go")
	for name, c := range map[string]struct {
		of   redisServer
		want [][]string
	}{
		"lock":    {redisServer{server: server{topology: alone}}, [][]string{lock.Needed, lock.Notified, lock.Lists}},
		"cluster": {redisServer{server: server{topology: cluster}}, [][]string{lock.Needed, lock.Notified, lock.Lists, lock.Cluster}},
		"quorum":  {redisServer{server: server{topology: quorum}}, [][]string{quorumLock.Needed, quorumLock.Notified}},
		"store":   {redisServer{server: server{target: target{store: true}}}, [][]string{store.Needed, store.Lists, {"+config|get"}}},
	} {
		want, got := map[string]bool{}, map[string]bool{}
		for _, right := range slices.Concat(c.want...) {
			if right[0] == '+' {
				want[right] = true
			}
		}
		for _, r := range rightsOf(&c.of) {
			got[r.name()] = true
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: tries %v, documented %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}
