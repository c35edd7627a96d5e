package docs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/testservers"
)

// The user that the guide sets up can do everything that a Locker does.
func TestGuide_rightsSuffice(t *testing.T) {
	server := testservers.StartRedis(t)
	grant(t, server, "### The lock service is unavailable")
	useRights(t, "redis://agent:password@"+server.Addr())
	if refused, err := server.Do("ACL", "LOG"); refused != "" || err != nil {
		t.Errorf("the server has refused %s, %v", refused, err)
	}
}

func TestGuide_rightsSufficeOnACluster(t *testing.T) {
	c := testservers.StartCluster(t)
	for _, node := range c.Nodes() {
		grant(t, node, "### The lock service is unavailable")
		grant(t, node, "### Keys, slots and rights")
	}
	useRights(t, strings.Replace(c.URL(), "://", "://agent:password@", 1))
	for _, node := range c.Nodes() {
		if refused, err := node.Do("ACL", "LOG"); refused != "" || err != nil {
			t.Errorf("a node has refused %s, %v", refused, err)
		}
	}
}

// Without the rights that the guide says are for notifications, everything works as well, and the log has the line that it shows.
func TestGuide_rightsForNotificationsCanBeMissing(t *testing.T) {
	for _, missing := range [][]string{{"resetchannels"}, {"-publish"}, {"-subscribe"}, {"resetchannels", "-publish", "-subscribe"}} {
		t.Run(strings.Join(missing, " "), func(t *testing.T) {
			server := testservers.StartRedis(t)
			grant(t, server, "### The lock service is unavailable")
			if _, err := server.Do(append([]string{"ACL", "SETUSER", "agent"}, missing...)...); err != nil {
				t.Fatal(err)
			}
			url := "redis://agent:password@" + server.Addr()
			useRights(t, url)

			lines := make(chan string, 10)
			waiter, err := lockurl.Open(t.Context(), url, &distlock.Options{Wait: time.Minute, Logger: slog.New(messages{slog.DiscardHandler, lines})})
			if err != nil {
				t.Fatal(err)
			}
			defer waiter.Close(t.Context())
			lease := acquire(t, open(t, url, nil))
			got := inLine(t, waiter)
			var line string
			select {
			case line = <-lines:
			case err := <-got:
				t.Fatalf("the waiter has no line in its log, and ends with %v", err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			if says := ReadPage(t, "docs/guide.md").section(t, "### The lock service is unavailable", "log")[0].text; line+"\n" != says {
				t.Errorf("the log has %q, the guide %q", line, says)
			}
		})
	}
}

// messages is a log of which only the texts are kept.
type messages struct {
	slog.Handler
	lines chan string
}

func (messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) Handle(_ context.Context, record slog.Record) error {
	m.lines <- record.Message
	return nil
}

// grant sends a server the command that stands below a heading of the guide.
func grant(t *testing.T, server *testservers.Redis, heading string) {
	t.Helper()
	command := strings.Fields(ReadPage(t, "docs/guide.md").section(t, heading, "redis")[0].text)
	if _, err := server.Do(command...); err != nil {
		t.Fatal(err)
	}
}

func useRights(t *testing.T, url string) {
	t.Helper()
	locker := open(t, url, nil)
	for range 2 { // the second time, the counter of the first is there
		lease := acquire(t, locker)
		if _, err := locker.TryAcquire(t.Context(), "session"); err == nil {
			t.Error("two leases")
		}
		if info, err := locker.Inspect(t.Context(), "session"); err != nil || !info.Held {
			t.Errorf("%+v, %v", info, err)
		}
		for _, ttl := range []time.Duration{time.Second, time.Minute} { // shorter, longer
			if err := lease.Extend(t.Context(), ttl); err != nil {
				t.Error(err)
			}
		}
		got := inLine(t, open(t, url, &distlock.Options{Wait: time.Minute}))
		for waiters := 0; waiters == 0; {
			select {
			case err := <-got:
				t.Fatalf("the waiter ends with %v", err)
			case <-time.After(time.Millisecond):
			}
			info, err := locker.Inspect(t.Context(), "session")
			if err != nil {
				t.Fatal(err)
			}
			waiters = info.Waiters
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

// inLine has the Locker wait for the lock, and give it back. The error comes when it has, or could not.
func inLine(t *testing.T, locker *distlock.Locker) <-chan error {
	ended := make(chan error, 1)
	go func() {
		lease, err := locker.Acquire(t.Context(), "session")
		ended <- errors.Join(err, lease.Release(t.Context()))
	}()
	return ended
}
