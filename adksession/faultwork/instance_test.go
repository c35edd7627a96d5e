package faultwork

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"
	"gorm.io/gorm"

	"github.com/belugalock/belugalock/adksession"
	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/campaign/instance"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{instance.Role: child.Role(serve)})
	leakcheck.VerifyTestMain(m)
}

// serve is an instance of an application. It serves the calls of its clients until its parent stops it.
func serve(ctx context.Context, parent *child.Line, c instance.Config) error {
	r, err := open(ctx, c)
	if err != nil {
		return err
	}
	instance.Serve(parent, map[string]func(instance.Order) instance.Reply{
		instance.Migrate: func(instance.Order) instance.Reply { return r.endOf(r.migrate(context.Background())) },
		instance.Run:     r.answer, instance.Read: r.stored,
	})
	return r.close()
}

// endOf says how a call has ended. ADK's own service has no kinds of errors.
func (r *runner) endOf(err error) instance.Reply {
	if err == nil {
		return instance.Reply{End: instance.Done}
	}
	s := instance.Reply{End: instance.Wrong, Err: err.Error(), Lost: errors.Is(err, distlock.ErrLost)}
	if r.config.Broken != "" || s.Lost || errors.Is(err, distlock.ErrNotAcquired) ||
		errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrOutcomeUnknown) {
		s.End = instance.Again
	}
	return s
}

// answer runs a question. The reply has the events that ADK yields.
func (r *runner) answer(o instance.Order) (s instance.Reply) {
	var yielded exchanges
	user, name, _ := strings.Cut(o.Session, "/")
	question := genai.NewContentFromText(o.Text, genai.RoleUser)
	for e, err := range r.run(context.Background(), user, name, question, agent.RunConfig{}) {
		if err != nil {
			return r.endOf(err)
		}
		yielded.add(e)
	}
	if len(yielded.all) == 1 && yielded.all[0].Answer != "" {
		s.End, s.Exchange = instance.Done, yielded.all[0]
	}
	return s
}

// stored reads a session.
func (r *runner) stored(o instance.Order) instance.Reply {
	user, name, _ := strings.Cut(o.Session, "/")
	found, err := r.sessions.Get(context.Background(), &session.GetRequest{AppName: app, UserID: user, SessionID: name})
	if errors.Is(err, adksession.ErrNotFound) || errors.Is(err, gorm.ErrRecordNotFound) {
		return instance.Reply{End: instance.Done} // no question was stored
	} else if err != nil {
		return r.endOf(err)
	}
	var all exchanges
	for e := range found.Session.Events().All() {
		all.add(e)
	}
	return instance.Reply{End: instance.Done, Turns: all.all, State: maps.Collect(found.Session.State().All())}
}

// exchanges are events in their order. The events of a run that do not stand together are several exchanges.
type exchanges struct {
	all  []instance.Exchange
	last string // run
}

func (x *exchanges) add(e *session.Event) {
	said, ofTool := textOf(e.Content)
	if n := len(x.all); n == 0 || e.Author == "user" || e.InvocationID != x.last || x.all[n-1].Answer != "" {
		x.all, x.last = append(x.all, instance.Exchange{}), e.InvocationID
	}
	switch last := &x.all[len(x.all)-1]; {
	case e.Author == "user":
		last.Question = said
	case ofTool:
		last.Tools += said + "\n"
	default:
		last.Answer = said
	}
}

// textOf is what a model or a tool has said.
func textOf(c *genai.Content) (said string, ofTool bool) {
	for _, p := range c.Parts {
		switch {
		case p.FunctionCall != nil:
			said, _ = p.FunctionCall.Args["text"].(string)
		case p.FunctionResponse != nil:
			said, _ = p.FunctionResponse.Response["text"].(string)
		default:
			return p.Text, false
		}
	}
	return said, true
}
