package runnerfaults

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

// config is that of an instance.
type config struct {
	URL      string        // of the Redis
	Unlocked bool          // on the plain service, without a lock
	Think    time.Duration // the longest time in which the agent answers
}

// request is a message of a client.
type request struct {
	Turn    int
	Session string
	Client  string
}

func (r request) text() string { return fmt.Sprintf("question %d of %s", r.Turn, r.Client) }

// reply is what a client sees.
type reply struct {
	Turn   int
	Answer string
	Err    string
	Code   core.ErrorCode // of Err, "broken" for a dead process
	Repeat bool           // Err is retryable
}

// instance runs turns until its parent stops it.
func instance(_ context.Context, parent *child.Line, c config) error {
	runner, err := open(c, writer{c.Think})
	if err != nil {
		return err
	}
	var clients sync.WaitGroup
	for {
		var r request
		if err := parent.Receive(&r); err != nil {
			clients.Wait()
			return runner.close()
		}
		clients.Go(func() { _ = parent.Send(ask(context.Background(), runner, r)) })
	}
}

// ask iterates a whole run.
func ask(ctx context.Context, runner *runner, r request) reply {
	answer := reply{Turn: r.Turn}
	for event, err := range runner.run(ctx, r.Session, schema.NewHumanMessage(r.text())) {
		if err != nil {
			answer.Err, answer.Code, answer.Repeat = err.Error(), "none", belugamemory.Retryable(err)
			if coded := new(core.Error); errors.As(err, &coded) {
				answer.Code = coded.Code
			}
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
