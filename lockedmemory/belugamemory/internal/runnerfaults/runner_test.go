package runnerfaults

import (
	"context"
	"errors"
	"iter"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// runner is a Runner and its sessions.
type runner struct {
	run      func(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error]
	sessions runtime.SessionService
	close    func() error
}

// open makes a Runner, as an application does.
func open(ctx context.Context, c config, a agent.Agent) (*runner, error) {
	if c.Unlocked {
		plain, err := newPlain(c.URL)
		if err != nil {
			return nil, err
		}
		s := &scripted{plain, a}
		run := func(ctx context.Context, id string, input schema.Message) iter.Seq2[agent.Event, error] {
			return s.Run(core.WithSessionID(ctx, id), id, input)
		}
		return &runner{run, plain, plain.client.Close}, nil
	}
	locker, err := lockurl.Open(ctx, c.URL, &distlock.Options{TTL: ttl})
	if err != nil {
		return nil, err
	}
	client, err := redislock.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	d, err := redisstore.NewDriver(client, &driver.Retention{})
	if err != nil {
		return nil, err
	}
	service, err := belugarunner.NewSessionService(d, locker)
	if err != nil {
		return nil, err
	}
	wrapped, err := belugarunner.WrapSessions(service, locker)
	if err != nil {
		return nil, err
	}
	run, err := belugarunner.LockRun(locker, (&scripted{wrapped, belugarunner.WrapAgent(a)}).Run,
		belugarunner.WithWait(ttl/2))
	return &runner{run, service, func() error { return errors.Join(locker.Close(context.Background()), client.Close()) }}, err
}

type knownKey struct{}

func turnsKnown(ctx context.Context) int { return ctx.Value(knownKey{}).(int) }

// scripted behaves like Beluga's Runner.
type scripted struct {
	sessions runtime.SessionService
	agent    agent.Agent
}

func (s *scripted) Run(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		type result struct {
			events []agent.Event
			err    error
		}
		results := make(chan result, 1)
		go func() {
			events, err := s.turn(ctx, sessionID, input)
			results <- result{events, err}
		}()
		select {
		case <-ctx.Done():
			yield(agent.Event{}, ctx.Err())
		case r := <-results:
			if r.err != nil {
				yield(agent.Event{}, r.err)
				return
			}
			for _, event := range r.events {
				if !yield(event, nil) {
					return
				}
			}
		}
	}
}

func (s *scripted) turn(ctx context.Context, sessionID string, input schema.Message) (events []agent.Event, err error) {
	session, err := s.sessions.Get(ctx, sessionID)
	if coded := new(core.Error); errors.As(err, &coded) && coded.Code == core.ErrNotFound {
		session, err = s.sessions.Create(ctx, "agent")
	}
	if err != nil {
		return nil, err
	}
	answer := ""
	ctx = context.WithValue(ctx, knownKey{}, len(session.Turns))
	for event, err := range s.agent.Stream(ctx, input.(*schema.HumanMessage).Text()) {
		if err != nil {
			return nil, err
		}
		events, answer = append(events, event), answer+event.Text
	}
	session.Turns = append(session.Turns, schema.Turn{Input: input, Output: schema.NewAIMessage(answer)})
	_ = s.sessions.Update(ctx, session)
	return events, nil
}
