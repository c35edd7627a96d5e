package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests mostly wait for servers, so more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// rig is one instance of a service: a client, a Locker, and the session with the test's name.
type rig struct {
	key    string
	at     lockedmemory.Place // of calls that replace
	keep   *sessionstore.Retention
	client redis.UniversalClient
	locker *distlock.Locker
	store  *sessionstore.Store[string, string]
	memory *lockedmemory.LockedMemory[string, string]
}

// newRig takes options of each kind. It connects to the shared server unless they have a client, a
// server or a proxy.
func newRig(t testing.TB, options ...any) *rig {
	t.Helper()
	var r rig
	var lock *distlock.Options
	var o redis.Options
	addr := servers.SharedServer().Addr()
	for _, option := range options {
		switch option := option.(type) {
		case redis.UniversalClient:
			r.client = option
		case interface{ Addr() string }:
			addr = option.Addr()
		case *redis.Options:
			o = *option
		case *distlock.Options:
			lock = option
		case *sessionstore.Retention:
			r.keep = option
		default:
			t.Fatalf("an option %T", option)
		}
	}
	if r.client == nil {
		o.Addr = addr
		r.client = redis.NewClient(&o)
	}
	t.Cleanup(func() { _ = r.client.Close() })
	r.locks(t, r.client, lock)
	return r.named(t, t.Name())
}

// locks makes the Locker of the rig over a client.
func (r *rig) locks(t testing.TB, client redis.UniversalClient, o *distlock.Options) {
	t.Helper()
	var err error
	r.locker, err = redislock.New(client, o)
	must(t, err)
	closing := r.locker
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = closing.Close(ctx)
	})
}

// named is the rig of another session.
func (r *rig) named(t testing.TB, session string) *rig {
	t.Helper()
	other := *r
	other.key = session
	var err error
	other.store, err = redisstore.New(r.client, lockedmemory.FixedKey(session), sessionstore.JSON[string]{}, r.keep, nil)
	must(t, err)
	other.memory = other.around(t, other.store)
	return &other
}

// around is a memory of another kind under the rig's lock.
func (r *rig) around(t testing.TB, inner lockedmemory.Memory[string, string]) *lockedmemory.LockedMemory[string, string] {
	t.Helper()
	m, err := lockedmemory.New(inner, r.locker, lockedmemory.FixedKey(r.key), nil)
	must(t, err)
	return m
}

// The Redis keys of the session, and of its lock.
func (r *rig) log() string   { return "session:{" + r.key + "}:log" }
func (r *rig) mark() string  { return "session:{" + r.key + "}:mark" }
func (r *rig) ids() string   { return "session:{" + r.key + "}:ids" }
func (r *rig) stage() string { return "session:{" + r.key + "}:stage" }
func (r *rig) inbox() string { return "session:{" + r.key + "}:inbox" }
func (r *rig) lock() string  { return "distlock:{" + r.key + "}:lock" }

// expire ends the lock as its TTL would. The record outlives the lock.
func (r *rig) expire(ctx context.Context) { r.client.PExpire(ctx, r.lock(), driver.FenceKeep) }

func (r *rig) history(t *testing.T) []string {
	t.Helper()
	m, err := r.store.Load(context.Background(), "")
	if err != nil {
		t.Errorf("Load: %v", err)
	}
	return m
}

// opens is a turn that only loads.
func (r *rig) opens(ctx context.Context) error {
	_, err := r.memory.Load(ctx, "")
	return err
}

// turn runs fn as a turn, which must succeed.
func (r *rig) turn(t testing.TB, fn func(ctx context.Context)) {
	t.Helper()
	must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error { fn(ctx); return nil }))
}

// stale returns the context of a turn that has ended while its holder was paused.
func (r *rig) stale(t *testing.T, during func(ctx context.Context) error) (ctx context.Context) {
	t.Helper()
	r.turn(t, func(inner context.Context) {
		ctx = context.WithoutCancel(inner)
		must(t, during(inner))
	})
	return ctx
}

func idle(context.Context) error { return nil }

// calls are those of a memory.
var calls = map[string]func(context.Context, *rig) error{
	"Save":     func(ctx context.Context, r *rig) error { return r.memory.Save(ctx, "q", "a") },
	"SaveOnce": func(ctx context.Context, r *rig) error { return r.memory.SaveOnce(ctx, "id", "q", "a") },
	"Answer": func(ctx context.Context, r *rig) error {
		_, err := r.memory.Answer(ctx, "id", "q", func(context.Context) ([]string, error) { return nil, errAsked })
		return err
	},
	"AnswerAll": func(ctx context.Context, r *rig) error {
		results, err := r.memory.AnswerAll(ctx, []lockedmemory.Question[string]{{ID: "id", Message: "q"}, {ID: "id2", Message: "q2"}},
			func(context.Context, []lockedmemory.Question[string]) ([]string, error) { return []string{"a"}, nil })
		if err == nil && len(results) > 0 {
			err = results[0].Err
		}
		return err
	},
	"Put":     func(ctx context.Context, r *rig) error { return r.memory.Put(ctx, "id", "q") },
	"Pending": func(ctx context.Context, r *rig) error { _, err := r.memory.Pending(ctx); return err },
	"Inboxes": func(ctx context.Context, r *rig) (last error) {
		for _, err := range r.memory.Inboxes(ctx) {
			last = err
		}
		return last
	},
	"Clear":              func(ctx context.Context, r *rig) error { return r.memory.Clear(ctx) },
	"Delete":             func(ctx context.Context, r *rig) error { return r.memory.Delete(ctx) },
	"Replace":            func(ctx context.Context, r *rig) error { return r.memory.Replace(ctx, r.at, r.at, exchange("edited")) },
	"Replace by nothing": func(ctx context.Context, r *rig) error { return r.memory.Replace(ctx, r.at, r.at) },
	"Load":               func(ctx context.Context, r *rig) error { return r.opens(ctx) },
	"Turn":               func(ctx context.Context, r *rig) error { return r.memory.Turn(ctx, r.opens) },
	"Stop": func(_ context.Context, r *rig) error { // also inside a turn
		_, err := r.memory.Stop(context.Background(), "id", 0)
		return err
	},
	"Search":   func(ctx context.Context, r *rig) error { _, err := r.memory.Search(ctx, "q", 1); return err },
	"Answered": func(ctx context.Context, r *rig) error { _, _, err := r.memory.Answered(ctx, "id"); return err },
	"Sessions": func(ctx context.Context, r *rig) (last error) {
		for _, err := range r.store.Sessions(ctx) {
			last = err
		}
		return last
	},
}

var errAsked = errors.New("the model was asked")

// do sends a command to a server.
func do(t testing.TB, server *servers.Redis, words ...string) {
	t.Helper()
	_, err := server.Do(words...)
	must(t, err)
}

// info is a number in the INFO of a server.
func info(t testing.TB, server *servers.Redis, field string) int {
	t.Helper()
	n, err := strconv.Atoi(server.Info(field))
	must(t, err)
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// service is the store of a Redis. locks is the Redis of the locks; nil: the same Redis, over the
// same client.
func service(store redis.UniversalOptions, locks *redis.UniversalOptions) func(tb testing.TB) storetest.Service {
	return func(tb testing.TB) storetest.Service {
		newClient := func(options redis.UniversalOptions) redis.UniversalClient {
			client := redis.NewUniversalClient(&options)
			tb.Cleanup(func() { _ = client.Close() })
			return client
		}
		client := newClient(store)
		lockClient := client
		if locks != nil {
			lockClient = newClient(*locks)
		}
		return storetest.Service{
			Driver: func(tb testing.TB, keep storedriver.Retention) storedriver.Driver {
				d, err := redisstore.NewDriver(client, &keep)
				must(tb, err)
				return d
			},
			Locker: func(tb testing.TB, opts *distlock.Options) *distlock.Locker {
				l, err := redislock.New(lockClient, opts)
				must(tb, err)
				return l
			},
		}
	}
}

const docOfLock = "../../../distlock/redislock/doc.go"

// as returns options of a user with the rights. The test fails if the server refuses that user something.
func as(t *testing.T, server *servers.Redis, keys []string, rights ...[]string) redis.UniversalOptions {
	servers.SetUser(t, server, "user", keys, slices.Concat(rights...)...)
	t.Cleanup(func() {
		if refused := servers.RefusedToUsers(t, server); refused != "" {
			t.Errorf("the server has refused %s", refused)
		}
	})
	return redis.UniversalOptions{Addrs: []string{server.Addr()}, Username: "user", Password: servers.UserPassword}
}

func TestConformance_redis(t *testing.T) {
	t.Parallel()
	ofStore, ofLock := servers.DocumentedRights(t, "doc.go"), servers.DocumentedRights(t, docOfLock)
	storetest.Run(t, service(as(t, servers.StartRedis(t), []string{"session", "listed", "distlock"},
		ofStore.Needed, ofStore.Lists, ofLock.Needed, ofLock.Notified), nil))
}

func TestConformance_locksElsewhere(t *testing.T) {
	t.Parallel()
	ofStore, ofLock := servers.DocumentedRights(t, "doc.go"), servers.DocumentedRights(t, docOfLock)
	locks := as(t, servers.StartRedis(t), []string{"distlock"}, ofLock.Needed, ofLock.Notified)
	locks.ContextTimeoutEnabled = true
	storetest.Run(t, service(as(t, servers.StartRedis(t), []string{"session", "listed"}, ofStore.Needed, ofStore.Lists), &locks))
}

func TestConformance_cluster(t *testing.T) {
	t.Parallel()
	storetest.Run(t, service(redis.UniversalOptions{Addrs: servers.StartCluster(t).Addrs()}, nil))
}

// The examples embed miniredis. It is no evidence about Redis.
func TestConformance_miniredis(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	// miniredis runs scripts in Go, which is slow with the race detector.
	storetest.Run(t, service(redis.UniversalOptions{Addrs: []string{server.Addr()}, ReadTimeout: time.Minute}, nil))
}
