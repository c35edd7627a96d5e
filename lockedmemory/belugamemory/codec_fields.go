package belugamemory

import "github.com/lookatitude/beluga-ai/v2/schema"

// formatVersion stands first in each text, in this and every later format: {"v":1,
const formatVersion = 1

// fields writes or reads the fields of a JSON object, so that each Beluga type has one list of them for both directions. The order
// of the calls is the order in the text. A field with the zero value is left out; an empty list or empty bytes are not zero.
type fields interface {
	text(name string, s *string)
	number(name string, n *int)
	data(name string, b *[]byte)
	parts(name string, parts *[]schema.ContentPart)
	toolCalls(name string, calls *[]schema.ToolCall)
	usage(name string, usage *schema.Usage)
	metadata(name string, metadata *map[string]any)
}

var (
	_ fields = (*writer)(nil)
	_ fields = (*reader)(nil)
)

func systemFields(f fields, m *schema.SystemMessage) {
	f.parts("parts", &m.Parts)
	f.metadata("metadata", &m.Metadata)
}

func humanFields(f fields, m *schema.HumanMessage) {
	f.parts("parts", &m.Parts)
	f.metadata("metadata", &m.Metadata)
}

func aiFields(f fields, m *schema.AIMessage) {
	f.parts("parts", &m.Parts)
	f.toolCalls("tool_calls", &m.ToolCalls)
	f.usage("usage", &m.Usage)
	f.text("model_id", &m.ModelID)
	f.metadata("metadata", &m.Metadata)
}

func toolFields(f fields, m *schema.ToolMessage) {
	f.text("tool_call_id", &m.ToolCallID)
	f.parts("parts", &m.Parts)
	f.metadata("metadata", &m.Metadata)
}

func toolCallFields(f fields, c *schema.ToolCall) {
	f.text("id", &c.ID)
	f.text("name", &c.Name)
	f.text("arguments", &c.Arguments)
}

func usageFields(f fields, u *schema.Usage) {
	f.number("input_tokens", &u.InputTokens)
	f.number("output_tokens", &u.OutputTokens)
	f.number("total_tokens", &u.TotalTokens)
	f.number("cached_tokens", &u.CachedTokens)
	f.number("reasoning_tokens", &u.ReasoningTokens)
}

func textFields(f fields, p *schema.TextPart) {
	f.text("text", &p.Text)
}

// Data stands last, so that what describes it can be seen before it.
func imageFields(f fields, p *schema.ImagePart) {
	f.text("mime_type", &p.MimeType)
	f.text("url", &p.URL)
	f.data("data", &p.Data)
}

func audioFields(f fields, p *schema.AudioPart) {
	f.text("format", &p.Format)
	f.number("sample_rate", &p.SampleRate)
	f.data("data", &p.Data)
}

func videoFields(f fields, p *schema.VideoPart) {
	f.text("mime_type", &p.MimeType)
	f.text("url", &p.URL)
	f.data("data", &p.Data)
}

func fileFields(f fields, p *schema.FilePart) {
	f.text("name", &p.Name)
	f.text("mime_type", &p.MimeType)
	f.data("data", &p.Data)
}

func thinkingFields(f fields, p *schema.ThinkingPart) {
	f.text("text", &p.Text)
	f.text("signature", &p.Signature)
}
