package redlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestUptime_followsTheServer(t *testing.T) {
	begin := time.Now()
	type answer struct {
		runID string
		up    time.Duration
		at    time.Duration // since the beginning
	}
	for what, c := range map[string]struct {
		answers []answer
		since   time.Duration // since the beginning
	}{
		"the first one":               {[]answer{{"a", time.Hour, 0}}, -time.Hour},
		"the same one":                {[]answer{{"a", 4 * time.Second, 0}, {"a", 15 * time.Second, 10 * time.Second}}, -4 * time.Second},
		"a restart":                   {[]answer{{"a", time.Hour, 0}, {"b", time.Second, time.Minute}}, 59 * time.Second},
		"a restart a while ago":       {[]answer{{"a", time.Hour, 0}, {"b", time.Minute, time.Hour}}, 59 * time.Minute},
		"a spare that is up for long": {[]answer{{"a", time.Hour, 0}, {"b", 2 * time.Hour, time.Minute}}, time.Minute},
		"its next connection":         {[]answer{{"a", time.Hour, 0}, {"b", 2 * time.Hour, time.Minute}, {"b", 2*time.Hour + time.Second, 61 * time.Second}}, time.Minute},
		"a spare that was up already": {[]answer{{"a", time.Hour, 0}, {"", 0, 2 * time.Minute}, {"b", 2 * time.Minute, 3 * time.Minute}}, 3 * time.Minute},
		"a late answer of the one before": {
			[]answer{{"a", time.Hour, 0}, {"b", time.Second, time.Minute}, {"a", time.Hour, 61 * time.Second}}, 61 * time.Second,
		},
	} {
		u := &uptime{}
		if u.Up() != 0 {
			t.Errorf("up for %s before the first answer", u.Up())
		}
		for _, a := range c.answers {
			if a.runID == "" { // to a call, on an old connection
				u.seen = begin.Add(a.at)
				continue
			}
			u.note(a.runID, a.up, begin.Add(a.at))
		}
		if got := u.since.Sub(begin); got != c.since {
			t.Errorf("%s: up since %s, want %s", what, got, c.since)
		}
	}
}

func TestParseInfo(t *testing.T) {
	const info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:17\r\nuptime_in_days:0\r\n"
	if runID, up, err := parseInfo(info); err != nil || runID != "abc" || up != 16*time.Second {
		t.Errorf("%q, %s, %v", runID, up, err)
	}
	if _, up, err := parseInfo(strings.Replace(info, ":17", ":0", 1)); err != nil || up != 0 {
		t.Errorf("%s, %v", up, err)
	}
	for _, bad := range []string{
		"", strings.Replace(info, "run_id", "id", 1), strings.Replace(info, "uptime_in_seconds", "up", 1),
		strings.Replace(info, ":17", ":-1", 1), strings.Replace(info, ":17", ":x", 1), strings.Replace(info, ":abc", ":", 1),
	} {
		if runID, up, err := parseInfo(bad); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("%q: %q, %s, %v; want ErrRefused", bad, runID, up, err)
		}
	}
}

// A connection does not outlive its server, so the next connection notices a restart.
func TestNode_S1_restartIsNoticed(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	n := open(t, &redis.Options{Addr: server.Addr()})
	if _, err := n.Inspect(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	servers.Await(t, 10*time.Second, "an uptime of two seconds", func() bool { return n.Up() > 2*time.Second })
	first, seen := n.runID, n.seen
	if _, err := n.Inspect(t.Context(), name); err != nil || !n.seen.After(seen) {
		t.Errorf("an answer is not noted: %v", err)
	}
	server.Restart()
	restarted := time.Now()
	servers.Await(t, 10*time.Second, "an answer", func() bool {
		_, err := n.Inspect(t.Context(), name)
		return err == nil
	})
	if up := n.Up(); up > time.Since(restarted)+2*time.Second || n.runID == first {
		t.Errorf("after a restart the server is up for %s, with the run ID %s after %s", up, n.runID, first)
	}
}

// Two addresses of one server would give it two votes.
func TestNode_S1_sameServerTwice_refused(t *testing.T) {
	t.Parallel()
	db := servers.SharedRedis(t)
	proxy := faultnet.New(t, db.Addr())
	var nodes []tested
	for _, addr := range []string{db.Addr(), proxy.Addr()} {
		nodes = append(nodes, open(t, &redis.Options{Addr: addr, DB: db.DB()}))
	}
	nodes[1].uptime.claims = nodes[0].uptime.claims
	nodes[0].propose(propose("a", 0), quorum.Granted)
	for range 2 {
		_, err := nodes[1].Acquire(t.Context(), propose("b", 0))
		if !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) || !strings.Contains(err.Error(), db.Addr()) ||
			!strings.Contains(err.Error(), proxy.Addr()) || !strings.Contains(err.Error(), "one server") {
			t.Errorf("the error is %v, want ErrRefused with both addresses", err)
		}
	}
	nodes[0].propose(propose("b", time.Minute), quorum.Busy)
}

// Nodes that never lose data are still servers of their own.
func TestNewDriver_S1_oneServer_withoutRestartDelay(t *testing.T) {
	t.Parallel()
	db := servers.SharedRedis(t)
	clients := make([]redis.UniversalClient, 3)
	for i := range clients {
		client := redis.NewClient(&redis.Options{Addr: faultnet.New(t, db.Addr()).Addr(), DB: db.DB()})
		defer client.Close()
		clients[i] = client
	}
	d, err := NewDriver(clients, &Options{RestartDelay: -time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	req := driver.AcquireRequest{Name: name, Owner: owner("a"), TTL: time.Minute}
	if reply, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "are one server") {
		t.Errorf("%+v, %v; want ErrRefused", reply, err)
	}
}

// Without the right to send INFO, the error says which right is missing.
func TestNode_infoRefused(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	do(t, server, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info")
	options := &redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"}
	n := open(t, options)
	_, err := n.Acquire(t.Context(), propose("a", 0))
	if !errors.Is(err, driver.ErrRights) || driver.MayHaveEffect(err) || !strings.Contains(err.Error(), "package redlock") {
		t.Errorf("the error is %v, want ErrRights", err)
	}
}

// The application's own hook for new connections runs first. Its error is that of the call.
func TestNode_onConnectOfTheApplication(t *testing.T) {
	t.Parallel()
	options, calls := onNode(t), 0
	options.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		if calls++; calls == 1 {
			return errors.New("not yet")
		}
		return c.ClientSetName(ctx, "named").Err()
	}
	n := open(t, options)
	if _, err := n.Inspect(t.Context(), name); err == nil || !strings.Contains(err.Error(), "not yet") || n.Up() != 0 {
		t.Errorf("the first connection: %v, up for %s", err, n.Up())
	}
	if _, err := n.Inspect(t.Context(), name); err != nil || calls != 2 || n.Up() == 0 {
		t.Errorf("the second connection: %v, up for %s, %d calls", err, n.Up(), calls)
	}
}
