package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/hitch"
	"github.com/belugalock/belugalock/examples/agent/internal/metrics"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/examples/agent/internal/scratch"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/tracing"
)

type agent struct {
	config
	name    string
	servers *scratch.Servers
	locker  *distlock.Locker
	store   *lockedmemory.LockedMemory[history.Message, history.Message] // of the run with whole turns
	tracer  trace.Tracer
}

// runAgent is what an instance does, in a process of its own.
func runAgent(ctx context.Context, number int, cfg config, deliveries <-chan balancer.Delivery) (err error) {
	name := fmt.Sprint("instance-", number)
	end := context.WithoutCancel(ctx)
	about := spans.About(name, string(cfg.Locked))
	provider, err := spans.NewProvider(ctx, os.Stdout, name, about)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Shutdown(end)) }()
	observed := []tracing.Option{tracing.WithTracerProvider(provider)}
	if cfg.Metrics != "" {
		meters, err := metrics.NewProvider(os.Stdout, about)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, meters.Shutdown(end)) }()
		observed = append(observed, tracing.WithMeterProvider(meters))
	}
	observer, err := tracing.New(observed...)
	if err != nil {
		return err
	}
	servers, err := scratch.New(cfg.Lock, cfg.Store, cfg.Run)
	if err != nil {
		return err
	}
	defer servers.Close()
	if cfg.Chaos {
		slog.SetDefault(slog.New(slog.DiscardHandler)) // that a lock was lost is what chaos is for
	}
	locker, err := servers.Locker(ctx, distlock.Options{TTL: cfg.TTL, Holder: name, Observer: observer})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close(end)) }()
	store, err := servers.Store(lockedmemory.SessionKey)
	if err != nil {
		return err
	}
	memory, err := lockedmemory.New(history.Far{Store: store}, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		return err
	}
	a := agent{cfg, name, servers, locker, memory, provider.Tracer("examples/agent")}
	for d := range deliveries {
		// A turn that has lost its lock, or has had no answer in time, is no error: its message is
		// delivered again.
		err := a.answer(ctx, d)
		if err != nil && !errors.Is(err, distlock.ErrLost) && !errors.Is(err, distlock.ErrUnavailable) && !errors.Is(err, distlock.ErrOutcomeUnknown) {
			return err
		}
	}
	return nil
}

// answer deals with one message of a user.
func (a *agent) answer(ctx context.Context, d balancer.Delivery) (err error) {
	ctx, end := spans.StartTurn(hitch.With(ctx, d.Hitch), a.tracer, d.Session, d.Message)
	defer func() { end(err) }()
	ctx = lockedmemory.WithSession(ctx, conversation(d.Session))
	list := a.list(a.servers, d.Session)
	switch a.Locked {
	case report.NoLock:
		return a.turn(ctx, list, d.Message)
	case report.SaveOnly:
		// As many guides do it: question and answer stay together. But two instances can load the
		// same history, and each answers without the other's messages.
		locked, err := lockedmemory.New(list, a.locker, lockedmemory.SessionKey, nil)
		if err != nil {
			return err
		}
		return a.turn(ctx, locked, d.Message)
	}
	// The lock covers the whole turn. A message keeps its ID however often it is delivered, and is answered
	// once.
	question := history.Question(d.Message, a.name)
	_, err = a.store.Answer(ctx, fmt.Sprint("message-", d.Message), question,
		func(ctx context.Context) ([]history.Message, error) {
			seen, err := a.store.Load(ctx, "")
			if err != nil {
				return nil, err
			}
			answer, err := a.model(ctx, seen, question)
			return []history.Message{answer}, err
		})
	return err
}

// turn is a turn without Answer.
func (a *agent) turn(ctx context.Context, memory history.Memory, message int) error {
	seen, err := memory.Load(ctx, "")
	delivered := func(m history.Message) bool { return m.Turn == message }
	if err != nil || slices.ContainsFunc(seen, delivered) {
		return err // nil if the message was delivered before: a list knows no IDs, so the agent looks
	}
	question := history.Question(message, a.name)
	answer, err := a.model(ctx, seen, question)
	if err != nil {
		return err
	}
	return memory.Save(ctx, question, answer)
}

// model stands for a language model.
func (a *agent) model(ctx context.Context, seen []history.Message, question history.Message) (history.Message, error) {
	ctx, span := a.tracer.Start(ctx, spans.Model)
	defer span.End()
	hitch.At(ctx, hitch.Model)
	select {
	case <-time.After(time.Duration(10+rand.IntN(31)) * time.Millisecond):
		return history.Answer(seen, question), nil
	case <-ctx.Done():
		return history.Message{}, context.Cause(ctx)
	}
}
