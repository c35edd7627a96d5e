package docs

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/testservers"
)

const (
	rightsOfLock    = "### The lock service is unavailable"
	rightsOfStore   = "### Rights for sessions"
	rightsInCluster = "### Keys, slots and rights"
)

// The guide lists the rights that the packages document, with which their own tests run.
func TestGuide_rightsAreThoseOfThePackages(t *testing.T) {
	lock := testservers.DocumentedRights(t, filepath.Join(root, "distlock/redislock/doc.go"))
	store := testservers.DocumentedRights(t, filepath.Join(root, "lockedmemory/sessionstore/redisstore/doc.go"))
	for _, c := range []struct {
		heading, namespace string
		want               []string
	}{
		{rightsOfLock, "distlock", slices.Concat(lock.Needed, lock.Told)},
		{rightsOfStore, "session", store.Needed},
		{rightsInCluster, "", lock.Cluster},
		{rightsInCluster, "", store.Cluster},
	} {
		var got []string
		for _, word := range command(t, c.heading) {
			if strings.ContainsAny(word[:1], "+~&") {
				got = append(got, strings.Replace(word, c.namespace+":", "<namespace>:", 1))
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the guide has %q, the package %q", c.heading, got, c.want)
		}
	}
}

func TestGuide_cluster(t *testing.T) {
	t.Parallel()
	c := testservers.StartCluster(t)
	t.Run("a single node's client", func(t *testing.T) {
		node := c.ReplicaOf(c.MasterOf("distlock:{session}:lock"))
		err := acquireError(t, open(t, node.URL(), nil))
		if !slices.ContainsFunc(inGuide(t), func(b block) bool {
			return slices.ContainsFunc(strings.Split(b.text, "\n"), func(text string) bool { return pattern(text).MatchString(err.Error()) })
		}) {
			t.Errorf("the guide does not have %q", err)
		}
	})
	t.Run("rights", func(t *testing.T) {
		url := strings.Replace(c.URL(), "://", "://agent:password@", 1)
		for _, node := range c.Nodes() {
			grant(t, node, rightsOfLock)
			grant(t, node, rightsInCluster)
		}
		useRights(t, url)
		for _, node := range c.Nodes() {
			grant(t, node, rightsOfStore)
		}
		client, err := lockurl.NewRedisClient(url)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		s := newStored(t, client)
		err = s.turn(t, func(ctx context.Context) error {
			return errors.Join(s.memory.Save(ctx, "q", "a"), s.memory.Clear(ctx))
		})
		if err != nil {
			t.Error(err)
		}
		for _, node := range c.Nodes() {
			if refused, err := node.Do("ACL", "LOG"); refused != "" || err != nil {
				t.Errorf("a node has refused %s, %v", refused, err)
			}
		}
	})
}

// Without the rights for notifications everything works, and the log has the line that the guide shows.
func TestGuide_rightsForNotificationsCanBeMissing(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	grant(t, server, rightsOfLock)
	if _, err := server.Do("ACL", "SETUSER", "agent", "resetchannels", "-publish", "-subscribe"); err != nil {
		t.Fatal(err)
	}
	url := "redis://agent:password@" + server.Addr()
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
	if says := ReadPage(t, "docs/guide.md").section(t, rightsOfLock, "log")[0].text; line+"\n" != says {
		t.Errorf("the log has %q, the guide %q", line, says)
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

// command returns the words of the command below a heading of the guide.
func command(t *testing.T, heading string) []string {
	t.Helper()
	return strings.Fields(ReadPage(t, "docs/guide.md").section(t, heading, "redis")[0].text)
}

func grant(t *testing.T, server *testservers.Redis, heading string) {
	t.Helper()
	if _, err := server.Do(command(t, heading)...); err != nil {
		t.Fatal(err)
	}
}

// useRights sends each kind of request.
func useRights(t *testing.T, url string) {
	t.Helper()
	locker := open(t, url, nil)
	lease := acquire(t, locker)
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	got := inLine(t, open(t, url, &distlock.Options{Wait: time.Minute}))
	testservers.Await(t, 10*time.Second, "a waiter in the queue", func() bool {
		info, err := locker.Inspect(t.Context(), "session")
		return err == nil && info.Waiters == 1
	})
	if err := errors.Join(lease.Release(t.Context()), <-got); err != nil {
		t.Error(err)
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
