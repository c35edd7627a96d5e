// Package agent holds the interface of agents.
package agent

import (
	"context"
	"iter"

	"github.com/lookatitude/beluga-ai/v2/llm"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"
)

type AgentMetadata interface {
	ID() string
	Persona() Persona
	Tools() []tool.Tool
	Children() []Agent
}

type AgentExecutor interface {
	Invoke(ctx context.Context, input string, opts ...Option) (string, error)
	Stream(ctx context.Context, input string, opts ...Option) iter.Seq2[Event, error]
}

type Agent interface {
	AgentMetadata
	AgentExecutor
}

type Middleware func(Agent) Agent

type Option func(*agentConfig)

type agentConfig struct {
	llm   llm.ChatModel
	tools []tool.Tool
}

type Persona struct {
	Role      string
	Goal      string
	Backstory string
	Traits    []string
}

type EventType string

const EventText EventType = "text"

type Event struct {
	Type       EventType
	Text       string
	ToolCall   *schema.ToolCall
	ToolResult *tool.Result
	AgentID    string
	Metadata   map[string]any
}
