package faultwork

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/campaign/instance"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{instance.Role: child.Role(serve)})
	leakcheck.VerifyTestMain(m)
}

// serve is an instance of an application. It serves the calls of its clients until its parent stops it.
func serve(_ context.Context, parent *child.Line, c instance.Config) error {
	runner, err := open(c, func(orphan string) { _ = parent.Send(instance.Reply{Orphan: orphan}) })
	if err != nil {
		return err
	}
	instance.Serve(parent, map[string]func(instance.Order) instance.Reply{
		instance.Run: runner.answer, instance.Stop: runner.end, instance.Read: runner.stored,
	})
	return runner.close()
}

// answer runs a message for a client, which may leave.
func (r *runner) answer(o instance.Order) (s instance.Reply) {
	ctx := context.Background()
	if o.Limit > 0 {
		limited, cancel := context.WithTimeout(ctx, o.Limit)
		defer cancel()
		ctx = limited
	}
	question := schema.NewHumanMessage(o.Text)
	if r.config.Broken != instance.NoID {
		question.Metadata = map[string]any{"message_id": o.ID}
	}
	events, isOpen := 0, false // a call without its result
	for event, err := range r.run(ctx, o.Session, question) {
		if err != nil {
			s = endOf(ctx, err)
			s.Cut = events > 0 && errors.Is(err, distlock.ErrInterrupted)
			return s
		}
		switch event.Type {
		case agent.EventText:
			s.Answer += event.Text
		case agent.EventToolCall:
			s.Tools, isOpen = s.Tools+"call "+event.ToolCall.ID+"\n", true
		case agent.EventToolResult:
			s.Tools, isOpen = s.Tools+"result "+textOf(&schema.ToolMessage{Parts: event.ToolResult.Content})+"\n", false
		case agent.EventDone:
			if s.Answer != event.Text {
				return instance.Reply{End: instance.Wrong, Err: "after other texts, done has " + event.Text}
			}
			s.End, s.Partial = instance.Done, event.Metadata[belugarunner.Stopped] == true
		}
		if events++; events == o.Leaves && s.End == "" {
			return instance.Reply{End: instance.Again}
		}
	}
	if isOpen && s.Partial { // as it is stored
		s.Tools += "result stopped\n"
	}
	return s
}

// endOf says how a call with an error has ended.
func endOf(ctx context.Context, err error) instance.Reply {
	s := instance.Reply{End: instance.Wrong, Err: err.Error(), Lost: errors.Is(err, distlock.ErrLost)}
	_, leaves := ctx.Deadline() // at this moment, or the one before
	switch leaves = leaves && errors.Is(err, context.DeadlineExceeded); {
	case errors.Is(err, lockedmemory.ErrStopped):
		s.End = instance.Stopped
	case leaves, s.Lost, belugamemory.Retryable(err), errors.Is(err, distlock.ErrInterrupted), errors.Is(err, distlock.ErrOutcomeUnknown):
		s.End = instance.Again
	}
	return s
}

// end stops a message or a session.
func (r *runner) end(o instance.Order) (s instance.Reply) {
	ctx, err := context.Background(), error(nil)
	switch {
	case r.config.Broken == instance.IdleStop:
	case o.ID == "":
		err = r.StopSession(ctx, o.Session, o.Limit)
	default:
		s.Stored, err = r.StopMessage(ctx, o.Session, o.ID, o.Limit)
	}
	if s.End = instance.Done; err != nil {
		s = endOf(ctx, err)
	}
	return s
}

// stored reads a session.
func (r *runner) stored(o instance.Order) (s instance.Reply) {
	session, err := r.sessions.Get(context.Background(), o.Session)
	if coded := new(core.Error); errors.As(err, &coded) && coded.Code == core.ErrNotFound {
		return instance.Reply{End: instance.Done} // no turn was stored
	} else if err != nil {
		return endOf(context.Background(), err)
	}
	var all []schema.Message
	s.End, s.Count = instance.Done, session.State["turns"]
	for _, turn := range session.Turns {
		e := instance.Exchange{Question: textOf(turn.Input), Answer: textOf(turn.Output), Partial: turn.Metadata[belugarunner.Stopped] == true}
		all = append(all, turn.Input)
		tools, _ := turn.Metadata[toolsKey].(string)
		for line := range strings.Lines(tools) {
			message, err := belugamemory.Codec{}.Decode([]byte(strings.TrimSuffix(line, "\n")))
			if err != nil {
				return instance.Reply{End: instance.Wrong, Err: err.Error()}
			}
			all = append(all, message)
			switch m := message.(type) {
			case *schema.AIMessage:
				e.Tools += "call " + m.ToolCalls[0].ID + "\n"
			case *schema.ToolMessage:
				e.Tools += "result " + textOf(m) + "\n"
			}
		}
		all = append(all, turn.Output)
		s.Turns = append(s.Turns, e)
	}
	s.Orphan = orphanOf(all)
	return s
}

// toolsKey is where belugarunner keeps the calls and results of a turn.
const toolsKey = "belugarunner.tools"

// orphanOf returns what a model would refuse: a call without its result, or a result without its call.
func orphanOf(history []schema.Message) string {
	var calls []string
	for _, message := range history {
		if result, ok := message.(*schema.ToolMessage); ok {
			n := slices.Index(calls, result.ToolCallID)
			if n < 0 {
				return fmt.Sprintf("the result %q of %q has no call", textOf(result), result.ToolCallID)
			}
			calls = slices.Delete(calls, n, n+1)
			continue
		}
		if len(calls) > 0 {
			break
		}
		if ai, ok := message.(*schema.AIMessage); ok {
			for _, call := range ai.ToolCalls {
				calls = append(calls, call.ID)
			}
		}
	}
	if len(calls) > 0 {
		return fmt.Sprintf("the calls %q have no result", calls)
	}
	return ""
}

func textOf(m schema.Message) string {
	if m, ok := m.(interface{ Text() string }); ok {
		return m.Text()
	}
	return ""
}
