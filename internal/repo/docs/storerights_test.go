package docs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	storedriver "github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

const (
	rightsOfLock  = "### The lock service is unavailable"
	rightsOfStore = "### Rights for sessions"
)

// The user that the guide sets up can do everything that a store does, over the lock's client and over one of its own.
func TestGuide_rightsForSessionsSuffice(t *testing.T) {
	server := testservers.StartRedis(t)
	grant(t, server, rightsOfLock)
	grant(t, server, rightsOfStore)
	useStore(t, "redis://agent:password@"+server.Addr(), server)
	if refused, err := server.Do("ACL", "LOG"); refused != "" || err != nil {
		t.Errorf("the server has refused %s, %v", refused, err)
	}
}

func TestGuide_rightsForSessionsSufficeOnACluster(t *testing.T) {
	c := testservers.StartCluster(t)
	for _, node := range c.Nodes() {
		grant(t, node, rightsOfLock)
		grant(t, node, rightsOfStore)
		grant(t, node, "### Keys, slots and rights")
	}
	useStore(t, strings.Replace(c.URL(), "://", "://agent:password@", 1), c.MasterOf("session:{session}:log"))
	for _, node := range c.Nodes() {
		if refused, err := node.Do("ACL", "LOG"); refused != "" || err != nil {
			t.Errorf("a node has refused %s, %v", refused, err)
		}
	}
}

// No right is one too many. Those that the lock needs as well are not looked at: it is the lock that would miss them.
func TestGuide_rightsForSessionsAreNeeded(t *testing.T) {
	ofLock := strings.Fields(ReadPage(t, "docs/guide.md").section(t, rightsOfLock, "redis")[0].text)
	server := testservers.StartRedis(t)
	for _, right := range strings.Fields(ReadPage(t, "docs/guide.md").section(t, rightsOfStore, "redis")[0].text)[3:] {
		if slices.Contains(ofLock, right) {
			continue
		}
		if strings.HasPrefix(right, "~") {
			right = "resetkeys"
		}
		grant(t, server, rightsOfLock)
		grant(t, server, rightsOfStore)
		for _, command := range [][]string{{"ACL", "SETUSER", "agent", strings.Replace(right, "+", "-", 1)}, {"ACL", "LOG", "RESET"}, {"FLUSHALL"}} {
			if _, err := server.Do(command...); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(right, func(t *testing.T) {
			useStore(quiet{t}, "redis://agent:password@"+server.Addr(), server)
			if refused, err := server.Do("ACL", "LOG"); refused == "" || err != nil {
				t.Errorf("nothing was refused, %v", err)
			}
		})
	}
}

// quiet is for what is expected to fail.
type quiet struct{ *testing.T }

func (quiet) Errorf(string, ...any) {}

// The package documentation names the rights that the guide names.
func TestRedisstore_rightsAreThoseOfTheGuide(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "lockedmemory", "sessionstore", "redisstore", "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(source), "// # Rights\n")
	text, _, _ = strings.Cut(text, "In a Cluster")
	var documented, want []string
	for _, word := range strings.Fields(text) {
		if strings.HasPrefix(word, "+") {
			documented = append(documented, strings.TrimRight(word, ";,."))
		}
	}
	for _, word := range strings.Fields(ReadPage(t, "docs/guide.md").section(t, rightsOfStore, "redis")[0].text) {
		if strings.HasPrefix(word, "+") {
			want = append(want, word)
		}
	}
	slices.Sort(documented)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(documented, want) {
		t.Errorf("the package documentation has %q, the guide %q", documented, want)
	}
}

// useStore does everything that a store can do, as the user of a URL. server is where the session is, for what is done by hand.
func useStore(t interface {
	testing.TB
	Context() context.Context
}, url string, server *testservers.Redis) {
	t.Helper()
	check := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	newClient := func() redis.UniversalClient {
		client, err := lockurl.NewRedisClient(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	lockClient := newClient()
	locker, err := redislock.New(lockClient, &distlock.Options{Wait: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locker.Close(context.Background()) })
	session := lockedmemory.FixedKey("session")
	for name, client := range map[string]redis.UniversalClient{"one client": lockClient, "two clients": newClient()} {
		options := &sessionstore.Options{IdleTTL: time.Hour, MaxTurns: 5}
		var d storedriver.Driver
		store, err := sessionstore.New(func(s storedriver.Settings) (_ storedriver.Driver, err error) {
			d, err = redisstore.NewDriver(client, s)
			return d, err
		}, session, sessionstore.JSON[string]{}, options)
		if err != nil {
			t.Fatal(err)
		}
		memory, err := lockedmemory.New(store, locker, session, nil)
		if err != nil {
			t.Fatal(err)
		}
		named := func(ctx context.Context) context.Context { return lockedmemory.WithTurnID(ctx, name) }
		turn := func(ctx context.Context) error {
			_, err := memory.Load(ctx, "")
			check("Load in a turn", err)
			check("Save in a turn", memory.Save(ctx, "q", "a"))
			check("Save with an ID in a turn", memory.Save(named(ctx), "q", "a"))
			check("Save in a turn", memory.Save(ctx, "q", "a"))
			_, err = memory.Search(ctx, "q", 3)
			check("Search", err)
			return nil
		}
		for range 2 { // there is no session at first
			check("Save", memory.Save(t.Context(), "q", "a"))
			check("Save with an ID", memory.Save(named(t.Context()), "q", "a"))
			check("Turn", memory.Turn(t.Context(), turn))
			for _, err := range store.Turns(t.Context()) {
				check("Turns", err)
			}
			if err := memory.Save(named(t.Context()), "q", "other"); !errors.Is(err, sessionstore.ErrTurnConflict) {
				t.Errorf("another Save of the ID: %v", err)
			}
			check("Clear", memory.Clear(t.Context()))
		}
		check("Turn", memory.Turn(t.Context(), func(ctx context.Context) error {
			check("Save", memory.Save(ctx, "q", "a"))
			lease, _ := lockedmemory.Lease(ctx)
			last := storedriver.Place{Fence: lease.Fence(), N: 2}
			check("Save", memory.Save(ctx, "q", "a"))
			if _, err := server.Do("XDEL", "session:{session}:log", last.String()); err != nil {
				t.Fatal(err)
			}
			other, err := redisstore.New(client, session, sessionstore.JSON[string]{}, options)
			if err != nil {
				t.Fatal(err)
			}
			check("Save by another store, the last entry having been removed by hand", other.Save(ctx, "q", "a"))
			return nil
		}))
		_, err = d.(storedriver.Instant).Settle(t.Context(), locker, "session", strings.Repeat("0", 32), time.Now())
		check("settling a Save", err)
	}
}
