package faultwork

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/campaign/beluga"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// runner is a Runner and its sessions.
type runner struct {
	run      func(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error]
	sessions runtime.SessionService
	close    func() error
}

// open makes a Runner, as an application does.
func open(c beluga.Config, a agent.Agent) (*runner, error) {
	if !c.Unlocked {
		// Less than the TTL, so that clients of a killed process's sessions repeat their messages.
		var r *belugarunner.Runner
		var err error
		servers.Within(10*time.Second, func() bool { // a busy machine may not answer at once
			r, err = belugarunner.New(a, c.URL, &belugarunner.Options{TTL: c.TTL, Wait: c.TTL / 2, Plugins: []runtime.Plugin{counter{}},
				History: 1 << 30}) // the plugin counts all turns
			return !errors.Is(err, distlock.ErrUnavailable)
		})
		if err != nil {
			return nil, err
		}
		return &runner{r.Run, r.Sessions(), func() error { return r.Shutdown(context.Background()) }}, nil
	}
	service, err := newPlain(c.URL)
	if err != nil {
		return nil, err
	}
	r := runtime.NewRunner(a, runtime.WithSessionService(service), runtime.WithPlugins(counter{}))
	run := func(ctx context.Context, id string, input schema.Message) iter.Seq2[agent.Event, error] {
		return r.Run(core.WithSessionID(ctx, id), id, input)
	}
	return &runner{run, service, func() error {
		defer service.client.Close()
		return r.Shutdown(context.Background())
	}}, nil
}

// counter is a plugin. It counts the turns in the State, and adds their number to the input.
type counter struct{}

func (counter) Name() string { return "counter" }

func (counter) BeforeTurn(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
	count, _ := s.State["turns"].(int)
	s.State["turns"] = count + 1
	return schema.NewHumanMessage(fmt.Sprintf("%s after %d turns", textOf(input), len(s.Turns))), nil
}

func (counter) AfterTurn(_ context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	return events, nil
}

func (counter) OnError(_ context.Context, err error) error { return err }
