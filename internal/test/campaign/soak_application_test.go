package campaign

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/tracing"
)

const (
	// A machine may stand for some seconds, and no lease may be lost.
	soakTTL    = 10 * time.Second
	renewEvery = soakTTL / 100
	// forget is after how long turn IDs and idle sessions go.
	forget       = 3 * time.Second
	maxExchanges = 20
	shownTurns   = 10
)

type remark struct{ Role, Text string }

// instance is one instance of the application.
type instance struct {
	client  *redis.Client
	options distlock.Options
	locker  *distlock.Locker
	talks   *remarks // sessions that go on and on
	visits  *remarks // sessions that expire
}

type remarks = lockedmemory.LockedMemory[remark, remark]

func newInstance(t testing.TB, server *servers.Redis, seen distlock.Observer) *instance {
	in := &instance{
		// The pool is always full. Otherwise each sample would depend on the connections in use at
		// that moment.
		client: redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, PoolSize: pool, MinIdleConns: pool}),
		options: distlock.Options{
			Namespace: "soak", TTL: soakTTL, RenewEvery: renewEvery, Wait: patience, Observer: seen,
			Logger: slog.New(slog.DiscardHandler), // of renewals that meet a connection that was killed
		},
	}
	t.Cleanup(func() { in.client.Close() })
	var err error
	if in.locker, err = redislock.New(in.client, &in.options); err != nil {
		t.Fatal(err)
	}
	in.talks = in.newMemory(t, sessionstore.Retention{MaxExchanges: maxExchanges, RememberIDs: forget}, sessionstore.Options{Window: shownTurns})
	in.visits = in.newMemory(t, sessionstore.Retention{IdleTTL: forget}, sessionstore.Options{})
	return in
}

func (in *instance) newMemory(t testing.TB, keep sessionstore.Retention, options sessionstore.Options) *remarks {
	store, err := redisstore.New(in.client, lockedmemory.SessionKey, sessionstore.JSON[remark]{}, &keep, &options)
	if err != nil {
		t.Fatal(err)
	}
	locked, err := lockedmemory.New(store, in.locker, lockedmemory.SessionKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	return locked
}

// observer counts what only an observer sees, and has package tracing do all that it does for an
// application.
type observer struct {
	*tracing.Tracing
	renewals, local, remote, cancelled atomic.Int64
}

func newObserver(t testing.TB) *observer {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(tracetest.NewNoopExporter()))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	traced, err := tracing.New(tracing.WithTracerProvider(provider))
	if err != nil {
		t.Fatal(err)
	}
	return &observer{Tracing: traced}
}

func (o *observer) End(ctx context.Context, op *distlock.Operation) {
	switch {
	case op.Name == distlock.OpExtend && op.Scheduled && op.Outcome == distlock.OutcomeDone:
		o.renewals.Add(1)
	case op.Name != distlock.OpAcquire:
	case op.Outcome == distlock.OutcomeCancelled:
		o.cancelled.Add(1)
	case op.Outcome == distlock.OutcomeAcquired && op.Handoff == distlock.HandoffLocal:
		o.local.Add(1)
	case op.Outcome == distlock.OutcomeAcquired && op.Handoff == distlock.HandoffRemote:
		o.remote.Add(1)
	}
	o.Tracing.End(ctx, op)
}
