package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(servers.Sharing{M: m}) }

// examine examines the locks of a URL, and the sessions of another one unless it is empty.
func examine(t *testing.T, lockURL, storeURL string) []Finding {
	t.Helper()
	services := Services{LockURL: lockURL, Locker: open(t, lockURL), StoreURL: storeURL}
	if storeURL != "" {
		services.Sessions = sessionsOf(t, storeURL)
	}
	return Examine(t.Context(), services)
}

// sessionsOf opens the sessions of a URL.
func sessionsOf(t *testing.T, rawURL string) (sessions storedriver.Driver) {
	t.Helper()
	address, opts, err := lockurl.Split(rawURL)
	must(t, err)
	locks, err := lockurl.OpenDriver(address)
	must(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	keep := storedriver.Retention{Namespace: opts.Namespace}
	if locks.Capabilities().Backend == "postgres" {
		sessions, err = pgstore.NewColocatedDriver(locks, &keep)
	} else {
		sessions, err = redisstore.NewColocatedDriver(locks, &keep)
	}
	must(t, err)
	return sessions
}

// finds examines a service, and wants these findings above the level Note, in this order: "level check".
func finds(t *testing.T, lockURL, storeURL string, want ...string) []Finding {
	t.Helper()
	findings := examine(t, lockURL, storeURL)
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

func do(t *testing.T, r *servers.Redis, args ...string) {
	t.Helper()
	if _, err := r.Do(args...); err != nil {
		t.Fatalf("%s: %v", args, err)
	}
}

func open(t *testing.T, url string) *distlock.Locker {
	t.Helper()
	locker, err := lockurl.Open(t.Context(), url, nil)
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })
	return locker
}

// Checks whose cause cannot be made here are tested on answers of a server.
func TestChecks_answersOfServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		check func(*redisServer) Finding
		info  string
		want  Level
	}{
		"no replica":           {replicas, "role:master\nconnected_slaves:0\nmin-replicas-to-write:0", Warning},
		"one replica":          {replicas, "role:master\nconnected_slaves:1\nmin-replicas-to-write:0", OK},
		"a cut-off master":     {replicas, "role:master\nconnected_slaves:2\nmin-replicas-to-write:0", Warning},
		"a bounded loss":       {replicas, "role:master\nconnected_slaves:2\nmin-replicas-to-write:1", OK},
		"none to spare":        {replicas, "role:master\nconnected_slaves:1\nmin-replicas-to-write:1", Note},
		"replica, by itself":   {replicas, "role:slave\nconnected_slaves:0\nmin-replicas-to-write:0", OK},
		"replica, by Sentinel": {role, "role:slave", OK},
		"lost slots":           {slots, "cluster_state:ok\ncluster_slots_ok:16383", Problem},
		"all slots":            {slots, "cluster_state:ok\ncluster_slots_ok:16384", OK},
	} {
		if got := c.check(&redisServer{topology: sentinel, facts: factsOf(c.info)}); got.Level != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
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
		{30000, 30 * time.Second, "Raise the TTL above 46.5s. Or set down to 5000."},
		{19000, 30 * time.Second, "Raise the TTL above 30s. Or set down to 5000."},
		{4000, 5 * time.Second, "Raise the TTL above 7.5s."},
		{4000, 4 * time.Second, "Raise the TTL above 7.5s."},
		{1000, time.Second, "Raise the TTL above 3s."},
		{900, 3 * time.Second, ""}, {900, 2 * time.Second, "Raise the TTL above 2.9s."},
	} {
		got := failover("down", c.down, c.ttl)
		if got.Do != c.want || (got.Level == OK) != (c.want == "") {
			t.Errorf("%d ms, TTL %v: %+v, want %q", c.down, c.ttl, got, c.want)
		}
		if _, text, advises := strings.Cut(got.Do, "TTL above "); advises {
			text, _, _ = strings.Cut(text, "s.")
			ttl, err := time.ParseDuration(text + "s")
			if err != nil || failover("down", c.down, ttl+100*time.Millisecond).Level != OK {
				t.Errorf("%d ms: the advice %q is a finding itself, %v", c.down, got.Do, err)
			}
		}
		if strings.Contains(got.Do, "Or set down to 5000.") && failover("down", 5000, c.ttl).Level != OK {
			t.Errorf("TTL %v: the advice %q is a finding itself", c.ttl, got.Do)
		}
	}
}

// The tries are those of the rights that the packages document.
func TestRights_documented(t *testing.T) {
	const root = "../../../../"
	lock := servers.DocumentedRights(t, root+"distlock/redislock/doc.go")
	quorumLock := servers.DocumentedRights(t, root+"distlock/redlock/doc.go")
	store := servers.DocumentedRights(t, root+"lockedmemory/sessionstore/redisstore/doc.go")
	for name, c := range map[string]struct {
		of   redisServer
		want [][]string
	}{
		"lock":    {redisServer{topology: alone}, [][]string{lock.Needed, lock.Notified, lock.Lists}},
		"cluster": {redisServer{topology: cluster}, [][]string{lock.Needed, lock.Notified, lock.Lists, lock.Cluster}},
		"quorum":  {redisServer{topology: quorum}, [][]string{quorumLock.Needed, quorumLock.Notified}},
		"store":   {redisServer{target: target{store: true}}, [][]string{store.Needed, store.Lists, {"+config|get"}}},
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
