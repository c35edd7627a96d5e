package redisstore_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
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
	client redis.UniversalClient
	locker *distlock.Locker
	store  *sessionstore.Store[string, string]
	memory *lockedmemory.LockedMemory[string, string]
}

// newRig connects to the shared server if the options name no other.
func newRig(t testing.TB, o redis.Options, lo *distlock.Options, keep *sessionstore.Retention) *rig {
	t.Helper()
	if o.Addr == "" {
		o.Addr = servers.SharedServer().Addr()
	}
	return newRigOver(t, redis.NewClient(&o), lo, keep)
}

func newRigOver(t testing.TB, client redis.UniversalClient, lo *distlock.Options, keep *sessionstore.Retention) *rig {
	t.Helper()
	r := &rig{key: t.Name(), client: client}
	t.Cleanup(func() { _ = client.Close() })
	var err error
	r.locker, err = redislock.New(client, lo)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = r.locker.Close(ctx)
	})
	r.store, err = redisstore.New(client, lockedmemory.FixedKey(r.key), sessionstore.JSON[string]{}, keep, nil)
	must(t, err)
	r.memory = r.around(t, r.store)
	return r
}

// around is a memory of another kind under the rig's lock.
func (r *rig) around(t testing.TB, inner lockedmemory.Memory[string, string]) *lockedmemory.LockedMemory[string, string] {
	t.Helper()
	m, err := lockedmemory.New(inner, r.locker, lockedmemory.FixedKey(r.key), nil)
	must(t, err)
	return m
}

// The Redis keys of the session, and of its lock.
func (r *rig) log() string  { return "session:{" + r.key + "}:log" }
func (r *rig) mark() string { return "session:{" + r.key + "}:mark" }
func (r *rig) lock() string { return "distlock:{" + r.key + "}:lock" }

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

// stale returns the context of a turn that has ended while its holder was paused.
func (r *rig) stale(t *testing.T, during func(ctx context.Context) error) (ctx context.Context) {
	t.Helper()
	must(t, r.memory.Turn(t.Context(), func(inner context.Context) error {
		ctx = context.WithoutCancel(inner)
		return during(inner)
	}))
	return ctx
}

func idle(context.Context) error { return nil }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
