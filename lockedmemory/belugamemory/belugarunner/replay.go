package belugarunner

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// idOf returns the message ID in the metadata of an input, or "", and the input without it. ⚑ That is a copy: the
// caller may run the same message again.
func (r *Runner) idOf(input schema.Message) (id string, _ schema.Message, err error) {
	if r.own == nil || isNil(input) {
		return "", input, nil
	}
	value, named := input.GetMetadata()[r.opts.MessageID]
	if !named {
		return "", input, nil
	}
	if id, _ = value.(string); id == "" {
		return "", nil, fmt.Errorf("%w: the metadata %q of the message is a %T; nothing was done: give a string of 1 to 512 bytes",
			lockedmemory.ErrInvalidID, r.opts.MessageID, value)
	}
	metadata := maps.Clone(input.GetMetadata())
	if delete(metadata, r.opts.MessageID); len(metadata) == 0 {
		metadata = nil // as of a message without an ID
	}
	switch m := input.(type) {
	case *schema.HumanMessage:
		return id, &schema.HumanMessage{Parts: m.Parts, Metadata: metadata}, nil
	case *schema.SystemMessage:
		return id, &schema.SystemMessage{Parts: m.Parts, Metadata: metadata}, nil
	case *schema.ToolMessage:
		return id, &schema.ToolMessage{ToolCallID: m.ToolCallID, Parts: m.Parts, Metadata: metadata}, nil
	case *schema.AIMessage:
		ai := *m
		ai.Metadata = metadata
		return id, &ai, nil
	}
	return "", nil, fmt.Errorf("%w: a %T has a message ID; nothing was done: give a message of Beluga's four types",
		sessionstore.ErrCodec, input)
}

// replay returns the events of a stored answer. An exchange ends with the turn of its message.
func (r *Runner) replay(stored [][]byte) (events []agent.Event, err error) {
	session := new(runtime.Session)
	head, _, _ := bytes.Cut(stored[0], []byte("\n"))
	err = decodeHead(session, head)
	turns, _, broken := decodeUpdate(stored[0])
	var told []schema.Message
	if err = cmp.Or(err, broken); err == nil && len(turns) > 0 {
		told, err = exchangeOf(turns[len(turns)-1])
	}
	if err != nil || len(turns) == 0 {
		return nil, fmt.Errorf("%w: the stored answer of %d turns: %v", sessionstore.ErrCodec, len(turns), err)
	}
	if err := r.ofAgent(session); err != nil {
		return nil, err
	}
	turn := turns[len(turns)-1]
	if !isNil(turn.Input) {
		told = told[1:]
	}
	for _, message := range told {
		switch m := message.(type) {
		case *schema.AIMessage:
			for _, call := range m.ToolCalls {
				events = append(events, agent.Event{Type: agent.EventToolCall, AgentID: r.opts.AgentID, ToolCall: &call})
			}
		case *schema.ToolMessage:
			events = append(events, agent.Event{Type: agent.EventToolResult, AgentID: r.opts.AgentID,
				ToolResult: &tool.Result{Content: m.Parts}})
		}
	}
	done := agent.Event{Type: agent.EventDone, AgentID: r.opts.AgentID, Text: belugamemory.Codec{}.Text(turn.Output)}
	if turn.Metadata[Stopped] == true {
		done.Metadata = map[string]any{Stopped: true}
	}
	if done.Text != "" {
		events = append(events, agent.Event{Type: agent.EventText, AgentID: r.opts.AgentID, Text: done.Text})
	}
	return append(events, done), nil
}
