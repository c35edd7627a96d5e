package incidents

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/pace"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// instance is one instance of an application, with its own network.
type instance struct {
	name   string
	net    *faultnet.Net
	client *redis.Client
	locker *distlock.Locker
	memory *lockedmemory.LockedMemory[string, string]
	refuse *lockedmemory.LockedMemory[string, string] // does not wait
	tracer trace.Tracer
}

func newInstance(s *stage, addr, name string) (*instance, error) {
	to := s.telemetry(name)
	if to.Logger == nil {
		to.Logger = slog.New(slog.DiscardHandler)
	}
	i := &instance{name: name, net: faultnet.NewNet(s.tb), tracer: to.Tracer}
	i.client = redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, Dialer: i.net.Dial,
		DialerRetries: 1, DialerRetryTimeout: time.Millisecond, MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: time.Millisecond})
	options := &distlock.Options{Namespace: s.namespace, Holder: name, TTL: 20 * time.Second, Wait: time.Minute,
		Observer: distlock.Observers(&witness{s.watch, name}, to.Observer, panics{}),
		Logger:   slog.New(&lines{to.Logger.Handler(), s.watch})}
	pace.Renew(options, 200*time.Millisecond)
	if name == Paused {
		pace.Renew(options, 9*time.Second) // none happens in the scene
	}
	var err error
	if i.locker, err = redislock.New(i.client, options); err != nil {
		return nil, err
	}
	store, err := redisstore.New(i.client, lockedmemory.SessionKey, sessionstore.JSON[string]{},
		&storedriver.Retention{Namespace: s.namespace + "-session"}, nil)
	if err != nil {
		return nil, err
	}
	i.memory, err = lockedmemory.New(store, i.locker, lockedmemory.SessionKey, nil)
	if err != nil {
		return nil, err
	}
	i.refuse, err = lockedmemory.New(store, i.locker, lockedmemory.SessionKey,
		&lockedmemory.Options{Busy: lockedmemory.Refuse})
	return i, err
}

// message runs fn in a trace of its own, with the session in its context.
func (i *instance) message(ctx context.Context, key string,
	fn func(ctx context.Context, trace trace.TraceID) error) error {
	ctx, span := i.tracer.Start(lockedmemory.WithSession(ctx, key), "message", trace.WithNewRoot())
	defer span.End()
	return fn(ctx, span.SpanContext().TraceID())
}
