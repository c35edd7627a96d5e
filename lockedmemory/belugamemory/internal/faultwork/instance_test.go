package faultwork

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/internal/test/campaign/beluga"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{beluga.Role: child.Role(instance)})
	leakcheck.VerifyTestMain(m)
}

// instance is an instance of an application with its clients, until its parent stops it; or it tells what
// is stored.
func instance(ctx context.Context, parent *child.Line, c beluga.Config) error {
	runner, err := open(c, writer{c.Think})
	if err != nil {
		return err
	}
	if c.Read {
		for _, session := range c.Sessions {
			_ = parent.Send(stored(ctx, runner, session))
		}
		return runner.close()
	}
	var clients sync.WaitGroup
	for n := range c.Clients {
		clients.Go(func() {
			name, rng := fmt.Sprintf("client-%d.%d", c.Run, n), rand.New(rand.NewPCG(c.Seed, uint64(c.Run*c.Clients+n)))
			for turn := (c.Run*c.Clients + n) << 32; ctx.Err() == nil; turn++ {
				say(parent, runner, c.Sessions[rng.IntN(len(c.Sessions))], conversation.Attempt{Turn: turn, Writer: name})
			}
		})
	}
	clients.Wait()
	return runner.close()
}

// say sends a message until its error is not retryable.
func say(parent *child.Line, runner *runner, session string, a conversation.Attempt) {
	for try, again := 0, true; again && try < 20; try++ {
		a.Begun, a.Ended, again = time.Now().UnixNano(), 0, false
		if parent.Send(beluga.Said{Session: session, Attempt: &a}) != nil {
			return
		}
		s := beluga.Said{Session: session, Attempt: &a}
		for event, err := range runner.run(context.Background(), session, schema.NewHumanMessage(fmt.Sprintf("question %d of %s", a.Turn, a.Writer))) {
			if err != nil {
				s.Err, s.Lost, again = err.Error(), isA(err, belugamemory.ErrLockLost), belugamemory.Retryable(err)
			}
			s.Answer += event.Text
		}
		a.Ended, a.Acknowledged = time.Now().UnixNano(), s.Err == ""
		_ = parent.Send(s)
	}
}

// stored reads a session.
func stored(ctx context.Context, runner *runner, name string) (s beluga.Said) {
	s.Session = name
	session, err := runner.sessions.Get(ctx, name)
	switch {
	case isA(err, core.ErrNotFound): // no turn was stored
	case err != nil:
		s.Err = err.Error()
	default:
		s.Count = session.State["turns"]
		for _, turn := range session.Turns {
			s.Stored = append(s.Stored, beluga.Pair{Question: textOf(turn.Input), Answer: textOf(turn.Output)})
		}
	}
	return s
}

func isA(err error, code core.ErrorCode) bool {
	coded := new(core.Error)
	return errors.As(err, &coded) && coded.Code == code
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
