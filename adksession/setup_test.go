package adksession

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/sessiontestsuite"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(servers.Sharing{M: m}) }

// rig is one instance of a service.
type rig struct {
	*Service
	client redis.UniversalClient
	locker *distlock.Locker
}

// newRig makes an instance over the shared server, or that of an option, with a Namespace of the test.
func newRig(t *testing.T, options ...any) *rig {
	t.Helper()
	var lock *distlock.Options
	addr, o := servers.SharedServer().Addr(), Options{}
	for _, option := range options {
		switch option := option.(type) {
		case interface{ Addr() string }:
			addr = option.Addr()
		case *distlock.Options:
			lock = option
		case Options:
			o = option
		default:
			t.Fatalf("an option %T", option)
		}
	}
	if o.Namespace == "" {
		o.Namespace = t.Name()
	}
	if lock == nil {
		lock = &distlock.Options{}
	}
	lock.Namespace = o.Namespace
	client := redis.NewClient(&redis.Options{Addr: addr})
	locker, err := redislock.New(client, lock)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = locker.Close(ctx)
		_ = client.Close()
	})
	s, err := NewRedis(client, locker, &o)
	must(t, err)
	return &rig{s, client, locker}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSuite(t *testing.T) {
	sessiontestsuite.RunServiceTests(t, sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true},
		func(t *testing.T) session.Service { return newRig(t) })
}
