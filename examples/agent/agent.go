package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/tracing"
)

type agent struct {
	order
	name   string
	server *server
	locker *distlock.Locker
	store  *lockedmemory.LockedMemory[history.Message, history.Message] // of the run with whole turns
	tracer trace.Tracer
	hitch  *history.Hitch
}

// runAgent is the work of an instance, in a process of its own.
func runAgent(ctx context.Context, program *child.Line, o order) (err error) {
	name := fmt.Sprint("instance-", o.Instance)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(balancer.Exporter{Program: program, Instance: name}))
	observer, err := tracing.New(tracing.WithTracerProvider(provider))
	if err != nil {
		return err
	}
	server, err := open(o.Lock, o.Run)
	if err != nil {
		return err
	}
	defer server.close()
	if o.Chaos {
		slog.SetDefault(slog.New(slog.DiscardHandler)) // that a lock was lost is what chaos is for
	}
	locker, err := server.locker(ctx, distlock.Options{TTL: o.TTL, Holder: name, Observer: observer})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close(context.WithoutCancel(ctx))) }()
	store, err := server.store()
	if err != nil {
		return err
	}
	hitch := &history.Hitch{Reached: func() { _ = program.Send(balancer.Line{}) }}
	memory, err := lockedmemory.New(history.Far{Store: store, Hitch: hitch}, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		return err
	}
	a := agent{o, name, server, locker, memory, provider.Tracer("examples/agent"), hitch}
	for {
		var d balancer.Delivery
		if program.Receive(&d) != nil {
			return nil // there are no more messages
		}
		t := balancer.Turn{Session: d.Session, Message: d.Message, Instance: name, Start: time.Now()}
		hitch.Place = d.Strike.Place
		err := a.answer(ctx, d)
		switch {
		case err == nil:
		case errors.Is(err, distlock.ErrLost), errors.Is(err, distlock.ErrUnavailable), errors.Is(err, distlock.ErrOutcomeUnknown):
			// The turn has lost its lock, or has had no answer in time. The message is delivered again.
			t.Error, t.Refused = err.Error(), errors.As(err, new(*sessionstore.StaleError))
		default:
			return err
		}
		t.End = time.Now()
		if err := program.Send(balancer.Line{Turn: &t}); err != nil {
			return err
		}
	}
}

// answer deals with one message of a user.
func (a *agent) answer(ctx context.Context, d balancer.Delivery) error {
	ctx = lockedmemory.WithSession(ctx, conversation(d.Session))
	list := listOf(a.server, a.Locked, d.Session)
	list.Hitch = a.hitch
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
	_, err := a.store.Answer(ctx, fmt.Sprint("message-", d.Message), question,
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
	ctx, span := a.tracer.Start(ctx, "model")
	defer span.End()
	select {
	case <-time.After(time.Duration(10+rand.IntN(31)) * time.Millisecond):
		return history.Answer(seen, question), nil
	case <-ctx.Done():
		return history.Message{}, context.Cause(ctx)
	}
}
