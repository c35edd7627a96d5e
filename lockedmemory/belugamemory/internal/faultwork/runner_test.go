package faultwork

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/campaign/instance"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// runner is a Runner and its sessions.
type runner struct {
	*belugarunner.Runner // nil: a plain one
	config               instance.Config
	run                  func(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[agent.Event, error]
	sessions             runtime.SessionService
	close                func() error
}

// open makes a Runner, as an application does.
func open(c instance.Config, tell func(orphan string)) (*runner, error) {
	model, plugins := witness{tell: tell}, []runtime.Plugin{counter{c.Broken}}
	if c.Broken != instance.NoLock {
		opts := belugarunner.WithStream()
		// Less than the TTL, so that clients of a killed process's sessions repeat their messages.
		opts.TTL, opts.Wait, opts.Plugins = c.TTL, c.TTL/2, plugins
		opts.KeepPartial, opts.Interruptible, opts.EndWithReader = c.KeepPartial, c.Interruptible, c.EndWithReader
		var r *belugarunner.Runner
		var err error
		servers.Within(10*time.Second, func() bool { // a busy machine may not answer at once
			r, err = belugarunner.New(writer{model: belugarunner.History(model), ttl: c.TTL}, c.URL, opts)
			return !errors.Is(err, distlock.ErrUnavailable)
		})
		if err != nil {
			return nil, err
		}
		return &runner{r, c, r.Run, r.Sessions(), func() error { return r.Shutdown(context.Background()) }}, nil
	}
	service, err := newPlain(c.URL)
	if err != nil {
		return nil, err
	}
	r := runtime.NewRunner(writer{model: model, ttl: c.TTL}, runtime.WithSessionService(service), runtime.WithPlugins(plugins...))
	run := func(ctx context.Context, id string, input schema.Message) iter.Seq2[agent.Event, error] {
		return r.Run(core.WithSessionID(ctx, id), id, input)
	}
	return &runner{nil, c, run, service, func() error {
		defer service.client.Close()
		return r.Shutdown(context.Background())
	}}, nil
}

// counter is a plugin. It counts the turns in the State, and adds their number to the input.
type counter struct{ broken string }

func (counter) Name() string { return "counter" }

func (c counter) BeforeTurn(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
	count, _ := s.State["turns"].(int)
	s.State["turns"] = count + 1
	for _, turn := range s.Turns {
		if tools, _ := turn.Metadata[toolsKey].(string); c.broken == instance.NoResult && turn.Metadata[belugarunner.Stopped] == true {
			turn.Metadata[toolsKey], _, _ = strings.Cut(tools, "\n") // the first call
		}
	}
	return schema.NewHumanMessage(fmt.Sprintf("%s after %d turns", textOf(input), count)), nil
}

func (counter) AfterTurn(_ context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	return events, nil
}

func (counter) OnError(_ context.Context, err error) error { return err }
