package subject

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
)

// ours is this library with everything on: renewal, notice of loss, and an Observer, because
// production has one.
type ours struct {
	locker *distlock.Locker
	client *redis.Client
}

func openOurs(s Setup) (Locker, error) { return openObserved(s, &observer{}) }

func openObserved(s Setup, o distlock.Observer) (Locker, error) {
	client := s.client()
	locker, err := redislock.New(client, &distlock.Options{
		TTL:      s.TTL,
		Wait:     -1, // as the others wait
		Observer: o,
		Logger:   slog.New(slog.DiscardHandler), // a Locker that is closed under its waiters says so
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &ours{locker, client}, nil
}

func (o *ours) Acquire(ctx context.Context, key string) (Held, error) {
	return o.locker.Acquire(ctx, key)
}

func (o *ours) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(o.locker.Close(ctx), o.client.Close())
}

// observer counts the handoffs from other processes.
type observer struct{ remote atomic.Int64 }

func (o *observer) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (o *observer) End(_ context.Context, op *distlock.Operation) {
	if op.Handoff == distlock.HandoffRemote {
		o.remote.Add(1)
	}
}
