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
	"github.com/belugalock/belugalock/examples/agent/internal/scratch"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/tracing"
)

type agent struct {
	config
	name    string
	servers *scratch.Servers
	memory  *lockedmemory.LockedMemory[history.Message, history.Message] // with the lock
	tracer  trace.Tracer
}

// runAgent is what an instance does, in a process of its own.
func runAgent(ctx context.Context, number int, cfg config, deliveries <-chan balancer.Delivery) (err error) {
	name := fmt.Sprint("instance-", number)
	end := context.WithoutCancel(ctx)
	provider, err := spans.NewProvider(ctx, os.Stdout, name, cfg.Locked)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Shutdown(end)) }()
	observer, err := tracing.New(tracing.WithTracerProvider(provider))
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
	store, err := servers.Store(conversation)
	if err != nil {
		return err
	}
	memory, err := lockedmemory.New(history.Far{Store: store}, locker, conversation, nil)
	if err != nil {
		return err
	}
	a := agent{cfg, name, servers, memory, provider.Tracer("examples/agent")}
	for d := range deliveries {
		// A turn that has lost its lock, or has had no answer in time, is no error: its message is delivered
		// again.
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
	question := history.Message{Role: "user", Turn: d.Message, Instance: a.name, Text: "question"}
	if !a.Locked {
		return a.turn(ctx, history.List{Log: a.servers.Log(d.Session)}, question)
	}
	// The whole turn needs the lock. Around Save alone it would keep question and answer together, but two instances could
	// still load the same history, and each would answer without knowing of the other.
	return a.memory.Turn(withConversation(ctx, d.Session), func(ctx context.Context) error {
		// The ID of the message is that of the turn. A message keeps it however often it is delivered, and is stored once.
		err := a.turn(lockedmemory.WithTurnID(ctx, fmt.Sprint("message-", d.Message)), a.memory, question)
		if errors.Is(err, sessionstore.ErrTurnConflict) {
			return nil // it was delivered before, and has its answer
		}
		return err
	})
}

// turn is the same with and without the lock.
func (a *agent) turn(ctx context.Context, memory history.Memory, question history.Message) error {
	loading, span := a.tracer.Start(ctx, "load")
	seen, err := memory.Load(loading, "")
	span.End()
	answered := func(m history.Message) bool { return m.Turn == question.Turn }
	if err != nil || !a.Locked && slices.ContainsFunc(seen, answered) {
		return err // nil if it was delivered before: a list knows no turn IDs, and one has to look
	}
	answer, err := a.model(ctx, seen, question)
	if err != nil {
		return err
	}
	return memory.Save(ctx, question, answer)
}

// model stands for a language model.
func (a *agent) model(ctx context.Context, seen []history.Message, question history.Message) (history.Message, error) {
	ctx, span := a.tracer.Start(ctx, "model")
	defer span.End()
	hitch.At(ctx, hitch.Model)
	select {
	case <-time.After(time.Duration(10+rand.IntN(31)) * time.Millisecond):
		return history.Message{Role: "assistant", Turn: question.Turn, Instance: a.name, Seen: len(seen), Text: "answer"}, nil
	case <-ctx.Done():
		return history.Message{}, context.Cause(ctx)
	}
}
