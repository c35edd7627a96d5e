package doctor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

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
			got = appendNew(got, string(f.Level)+" "+f.Check)
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

// Checks whose cause cannot be made here are tested on answers of a server.
func TestChecks_answersOfServers(t *testing.T) {
	type answers = map[string]string
	for name, c := range map[string]struct {
		check func(context.Context, *redisServer) Finding
		info  answers
		want  Level
	}{
		"version 5":          {version, answers{"redis_version": "5.0.14"}, Problem},
		"version 6.0":        {version, answers{"redis_version": "6.0.16"}, Problem},
		"version 6.2":        {version, answers{"redis_version": "6.2.0"}, OK},
		"version 10":         {version, answers{"redis_version": "10.0.1"}, OK},
		"disk full":          {persistence, answers{"aof_enabled": "1", "aof_last_write_status": "err"}, Problem},
		"snapshot failed":    {persistence, answers{"aof_enabled": "1", "rdb_last_bgsave_status": "err"}, Problem},
		"machine full":       {memory, answers{"used_memory": "90", "total_system_memory": "100"}, Warning},
		"many clients":       {clients, answers{"connected_clients": "95", "maxclients": "100"}, Warning},
		"lost replica":       {role, answers{"role": "slave", "master_link_status": "down"}, Warning},
		"one replica":        {replicas, answers{"role": "master", "connected_slaves": "1"}, Note},
		"INFO refused, role": {role, nil, ""},
	} {
		s := &redisServer{info: c.info, topology: sentinel, config: answers{"min-replicas-to-write": "0"}}
		if got := c.check(t.Context(), s); got.Level != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	here, ahead := &redisServer{name: "a"}, &redisServer{name: "b", offset: 3 * slow}
	if got := clocks([]*redisServer{here, ahead}); got.Level != Warning || !strings.Contains(got.Found, "b is 3s ahead of a") {
		t.Errorf("clocks: %+v", got)
	}
	if got := clock(t.Context(), ahead); got.Level != Warning {
		t.Errorf("clock: %+v", got)
	}
	if got, _ := postgresVersion(t.Context(), &postgresServer{settings: answers{"server_version_num": "130012"}}); got.Level != Problem {
		t.Errorf("PostgreSQL 13: %+v", got)
	}
	for _, setting := range []string{"fsync", "full_page_writes", "autovacuum", "synchronous_commit"} {
		if got, _ := durability(t.Context(), &postgresServer{settings: answers{setting: "off"}}); got.Level == OK || got.Found != setting+" off" {
			t.Errorf("%s: %+v", setting, got)
		}
	}
	if got, _ := timeouts(t.Context(), &postgresServer{settings: answers{"idle_session_timeout": "5000"}}); got.Level != Warning {
		t.Errorf("idle_session_timeout: %+v", got)
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
		"lock":    {redisServer{topology: alone}, [][]string{lock.Needed, lock.Notified, lock.Lists}},
		"cluster": {redisServer{topology: cluster}, [][]string{lock.Needed, lock.Notified, lock.Lists, lock.Cluster}},
		"quorum":  {redisServer{topology: quorum}, [][]string{quorumLock.Needed, quorumLock.Notified}},
		"store":   {redisServer{target: target{store: true}}, [][]string{store.Needed, store.Lists, {"+memory|usage", "+config|get"}}},
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
