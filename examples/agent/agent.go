package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/tracing"
)

type agent struct {
	config
	name   string
	client redis.UniversalClient
	locker *distlock.Locker
	tracer trace.Tracer
}

// runAgent is what an instance does, in a process of its own.
func runAgent(ctx context.Context, number int, cfg config) (err error) {
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
	locker, err := lockurl.Open(ctx, cfg.Redis, &distlock.Options{
		Namespace: cfg.Run,
		TTL:       5 * time.Second, // how long others wait for what a dead instance held; a living one renews it
		Holder:    name,
		Observer:  observer,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close(end)) }()
	client, err := connect(ctx, cfg.Redis)
	if err != nil {
		return err
	}
	defer client.Close()
	a := agent{cfg, name, client, locker, provider.Tracer("examples/agent")}
	for n := range cfg.Turns * cfg.Sessions {
		turn, session := n/cfg.Sessions, n%cfg.Sessions
		// Every fifth message reaches the next instance, too, as after a retry by a load balancer.
		if turn%cfg.Instances == number-1 || turn%5 == 0 && (turn+1)%cfg.Instances == number-1 {
			if err := a.answer(ctx, session, turn); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer deals with one message of a user.
func (a *agent) answer(ctx context.Context, session, turn int) (err error) {
	ctx, end := spans.StartTurn(ctx, a.tracer, session, turn)
	defer func() { end(err) }()
	store := history.New(a.client, a.historyKey(session))
	question := history.Message{Role: "user", Turn: turn, Instance: a.name, Text: "question"}
	if !a.Locked {
		return a.turn(ctx, store, question)
	}
	memory, err := lockedmemory.New(store, a.locker, lockedmemory.FixedKey(fmt.Sprint("conversation-", session)), nil)
	if err != nil {
		return err
	}
	// The whole turn needs the lock. Around Save alone it would keep question and answer together, but two instances could
	// still load the same history, and each would answer without knowing of the other.
	return memory.Turn(ctx, func(ctx context.Context) error { return a.turn(ctx, memory, question) })
}

// Memory is what Beluga's memory.Memory is with its own messages and documents.
type Memory = lockedmemory.Memory[history.Message, history.Document]

// turn is the same with and without the lock.
func (a *agent) turn(ctx context.Context, memory Memory, question history.Message) error {
	loading, span := a.tracer.Start(ctx, "load")
	seen, err := memory.Load(loading, "")
	span.End()
	if err != nil || slices.ContainsFunc(seen, func(m history.Message) bool { return m.Turn == question.Turn }) {
		return err // nil if there is nothing to do: the message was delivered twice, and has its answer
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
	select {
	case <-time.After(time.Duration(10+rand.IntN(31)) * time.Millisecond):
		return history.Message{Role: "assistant", Turn: question.Turn, Instance: a.name, Seen: len(seen), Text: "answer"}, nil
	case <-ctx.Done():
		return history.Message{}, context.Cause(ctx)
	}
}
