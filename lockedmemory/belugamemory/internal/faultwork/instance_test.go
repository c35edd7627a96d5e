package faultwork

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/internal/test/campaign/beluga"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

// instance runs turns until its parent stops it.
func instance(_ context.Context, parent *child.Line, c beluga.Config) error {
	runner, err := open(c, writer{c.Think})
	if err != nil {
		return err
	}
	var clients sync.WaitGroup
	for {
		var r beluga.Request
		if err := parent.Receive(&r); err != nil {
			clients.Wait()
			return runner.close()
		}
		clients.Go(func() { _ = parent.Send(ask(context.Background(), runner, r)) })
	}
}

// ask iterates a whole run, or reads a session.
func ask(ctx context.Context, runner *runner, r beluga.Request) beluga.Reply {
	answer := beluga.Reply{Turn: r.Turn}
	fails := func(err error) {
		answer.Err, answer.Code, answer.Repeat = err.Error(), "none", belugamemory.Retryable(err)
		if coded := new(core.Error); errors.As(err, &coded) {
			answer.Code, answer.Lost = string(coded.Code), coded.Code == belugamemory.ErrLockLost
		}
	}
	if r.Client == "" {
		session, err := runner.sessions.Get(ctx, r.Session)
		if coded := new(core.Error); errors.As(err, &coded) && coded.Code == core.ErrNotFound {
			return answer // no turn was stored
		}
		if err != nil {
			fails(err)
			return answer
		}
		answer.Count = session.State["turns"]
		for _, turn := range session.Turns {
			answer.Stored = append(answer.Stored, beluga.Pair{Question: textOf(turn.Input), Answer: textOf(turn.Output)})
		}
		return answer
	}
	for event, err := range runner.run(ctx, r.Session, schema.NewHumanMessage(r.Question())) {
		if err != nil {
			fails(err)
		}
		answer.Answer += event.Text
	}
	return answer
}

// writer is an agent. Its answer repeats the input, in two events.
type writer struct{ think time.Duration }

func (writer) ID() string              { return "writer" }
func (writer) Persona() agent.Persona  { return agent.Persona{} }
func (writer) Tools() []tool.Tool      { return nil }
func (writer) Children() []agent.Agent { return nil }

func (writer) Invoke(context.Context, string, ...agent.Option) (string, error) {
	return "", errors.New("a Runner streams")
}

func (w writer) Stream(ctx context.Context, input string, _ ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		select {
		case <-time.After(rand.N(w.think)):
		case <-ctx.Done():
			yield(agent.Event{}, ctx.Err())
			return
		}
		_ = yield(agent.Event{Type: agent.EventText, Text: "answer to "}, nil) &&
			yield(agent.Event{Type: agent.EventText, Text: input}, nil)
	}
}

func textOf(m schema.Message) string {
	if m, ok := m.(interface{ Text() string }); ok {
		return m.Text()
	}
	return ""
}
