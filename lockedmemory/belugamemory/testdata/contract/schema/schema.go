// Package schema holds messages.
package schema

import (
	"strings"
	"time"
)

type Role string

const (
	RoleSystem Role = "system"
	RoleHuman  Role = "human"
	RoleAI     Role = "ai"
	RoleTool   Role = "tool"
)

type Message interface {
	GetRole() Role
	GetContent() []ContentPart
	GetMetadata() map[string]any
}

type SystemMessage struct {
	Parts    []ContentPart
	Metadata map[string]any
}

type HumanMessage struct {
	Parts    []ContentPart
	Metadata map[string]any
}

type AIMessage struct {
	Parts     []ContentPart
	ToolCalls []ToolCall
	Usage     Usage
	ModelID   string
	Metadata  map[string]any
}

type ToolMessage struct {
	ToolCallID string
	Parts      []ContentPart
	Metadata   map[string]any
}

func (m *SystemMessage) GetRole() Role { return RoleSystem }
func (m *HumanMessage) GetRole() Role  { return RoleHuman }
func (m *AIMessage) GetRole() Role     { return RoleAI }
func (m *ToolMessage) GetRole() Role   { return RoleTool }

func (m *SystemMessage) GetContent() []ContentPart { return m.Parts }
func (m *HumanMessage) GetContent() []ContentPart  { return m.Parts }
func (m *AIMessage) GetContent() []ContentPart     { return m.Parts }
func (m *ToolMessage) GetContent() []ContentPart   { return m.Parts }

func (m *SystemMessage) GetMetadata() map[string]any { return m.Metadata }
func (m *HumanMessage) GetMetadata() map[string]any  { return m.Metadata }
func (m *AIMessage) GetMetadata() map[string]any     { return m.Metadata }
func (m *ToolMessage) GetMetadata() map[string]any   { return m.Metadata }

func (m *SystemMessage) Text() string { return text(m.Parts) }
func (m *HumanMessage) Text() string  { return text(m.Parts) }
func (m *AIMessage) Text() string     { return text(m.Parts) }
func (m *ToolMessage) Text() string   { return text(m.Parts) }

// text leaves out empty parts at the beginning.
func text(parts []ContentPart) string {
	var texts []string
	for _, part := range parts {
		if t, ok := part.(TextPart); ok && (t.Text != "" || len(texts) > 0) {
			texts = append(texts, t.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func NewSystemMessage(text string) *SystemMessage {
	return &SystemMessage{Parts: []ContentPart{TextPart{text}}}
}

func NewHumanMessage(text string) *HumanMessage {
	return &HumanMessage{Parts: []ContentPart{TextPart{text}}}
}

func NewAIMessage(text string) *AIMessage {
	return &AIMessage{Parts: []ContentPart{TextPart{text}}}
}

func NewToolMessage(callID, text string) *ToolMessage {
	return &ToolMessage{ToolCallID: callID, Parts: []ContentPart{TextPart{text}}}
}

type ContentType string

const (
	ContentText     ContentType = "text"
	ContentImage    ContentType = "image"
	ContentAudio    ContentType = "audio"
	ContentVideo    ContentType = "video"
	ContentFile     ContentType = "file"
	ContentThinking ContentType = "thinking"
)

// ContentPart is one of the six below, as a value.
type ContentPart interface{ PartType() ContentType }

type TextPart struct{ Text string }

type ImagePart struct {
	Data     []byte
	MimeType string
	URL      string
}

type AudioPart struct {
	Data       []byte
	Format     string
	SampleRate int
}

type VideoPart struct {
	Data     []byte
	MimeType string
	URL      string
}

type FilePart struct {
	Data     []byte
	Name     string
	MimeType string
}

type ThinkingPart struct {
	Text      string
	Signature string
}

func (TextPart) PartType() ContentType     { return ContentText }
func (ImagePart) PartType() ContentType    { return ContentImage }
func (AudioPart) PartType() ContentType    { return ContentAudio }
func (VideoPart) PartType() ContentType    { return ContentVideo }
func (FilePart) PartType() ContentType     { return ContentFile }
func (ThinkingPart) PartType() ContentType { return ContentThinking }

type ToolCall struct {
	ID        string
	Name      string
	Arguments string
}

type ToolDefinition struct {
	Name        string
	Description string
	InputSchema map[string]any
}

type StreamChunk struct {
	Delta          string
	ToolCalls      []ToolCall
	FinishReason   string
	Usage          *Usage
	ReasoningDelta string
	ModelID        string
}

type Usage struct {
	InputTokens     int
	OutputTokens    int
	TotalTokens     int
	CachedTokens    int
	ReasoningTokens int
}

type Document struct {
	ID                   string
	Content              string
	Metadata             map[string]any
	Score                float64
	Embedding            []float32
	MultiVectorEmbedding [][]float32
}

type Turn struct {
	Input     Message
	Output    Message
	Timestamp time.Time
	Metadata  map[string]any
}
