package belugamemory

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// mirror is a message as encoding/json writes and reads it. Zero values are left out; empty lists,
// maps and bytes are not.
type mirror struct {
	Version    int          `json:"v"`
	Role       schema.Role  `json:"role"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
	Parts      []partMirror `json:"parts,omitzero"`
	ToolCalls  []callMirror `json:"tool_calls,omitzero"`
	Usage      usageMirror  `json:"usage,omitzero"`
	ModelID    string       `json:"model_id,omitempty"`
	Metadata   any          `json:"metadata,omitempty"` // as pack returns it
}

// partMirror has the fields of all parts. Data stands last, where it hides nothing.
type partMirror struct {
	Type       schema.ContentType `json:"type"`
	Text       string             `json:"text,omitempty"`
	Signature  string             `json:"signature,omitempty"`
	Name       string             `json:"name,omitempty"`
	MimeType   string             `json:"mime_type,omitempty"`
	URL        string             `json:"url,omitempty"`
	Format     string             `json:"format,omitempty"`
	SampleRate int                `json:"sample_rate,omitempty"`
	Data       []byte             `json:"data,omitzero"`
}

type callMirror struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}

type usageMirror struct {
	InputTokens     int `json:"input_tokens,omitempty"`
	OutputTokens    int `json:"output_tokens,omitempty"`
	TotalTokens     int `json:"total_tokens,omitempty"`
	CachedTokens    int `json:"cached_tokens,omitempty"`
	ReasoningTokens int `json:"reasoning_tokens,omitempty"`
}

// mirrorOf is called with a known message.
func mirrorOf(message schema.Message) (m mirror, err error) {
	m.Version, m.Role = formatVersion, message.GetRole()
	switch message := message.(type) {
	case *schema.AIMessage:
		m.Usage, m.ModelID = usageMirror(message.Usage), message.ModelID
		if m.ToolCalls, err = convert(message.ToolCalls, mirrorOfCall); err != nil {
			return m, fmt.Errorf("tool call %w", err)
		}
	case *schema.ToolMessage:
		m.ToolCallID = message.ToolCallID
	}
	if err := checkUTF8(m); err != nil {
		return m, fmt.Errorf("its model ID or tool call ID %w", err)
	}
	if m.Parts, err = convert(message.GetContent(), mirrorOfPart); err != nil {
		return m, fmt.Errorf("part %w", err)
	}
	if metadata := message.GetMetadata(); metadata != nil {
		if deep(reflect.ValueOf(metadata), maxDepth) {
			return m, fmt.Errorf("its metadata nests more than %d levels deep, or contains itself", maxDepth)
		}
		if m.Metadata, err = pack(metadata); err != nil {
			return m, fmt.Errorf("metadata %w", err)
		}
	}
	return m, nil
}

func mirrorOfCall(call schema.ToolCall) (callMirror, error) { return callMirror(call), checkUTF8(call) }

func mirrorOfPart(part schema.ContentPart) (m partMirror, err error) {
	switch p := part.(type) {
	case schema.TextPart:
		m = partMirror{Text: p.Text}
	case schema.ThinkingPart:
		m = partMirror{Text: p.Text, Signature: p.Signature}
	case schema.ImagePart:
		m = partMirror{MimeType: p.MimeType, URL: p.URL, Data: p.Data}
	case schema.VideoPart:
		m = partMirror{MimeType: p.MimeType, URL: p.URL, Data: p.Data}
	case schema.AudioPart:
		m = partMirror{Format: p.Format, SampleRate: p.SampleRate, Data: p.Data}
	case schema.FilePart:
		m = partMirror{Name: p.Name, MimeType: p.MimeType, Data: p.Data}
	default:
		return m, fmt.Errorf("is a %T; it must be a schema.TextPart, ThinkingPart, ImagePart, VideoPart, AudioPart or FilePart, "+
			"and no pointer to one", part)
	}
	m.Type = part.PartType()
	return m, checkUTF8(m)
}

// checkUTF8 checks the texts of a struct: encoding/json would change those that are not UTF-8.
func checkUTF8(texts any) error {
	v := reflect.ValueOf(texts)
	for i := range v.NumField() {
		if field := v.Field(i); field.Kind() == reflect.String && !utf8.ValidString(field.String()) {
			return errors.New("is not valid UTF-8: mend it with strings.ToValidUTF8, or store it in the metadata")
		}
	}
	return nil
}

// message leaves out parts of unknown types if m is newer than this package.
func (m mirror) message() (schema.Message, error) {
	parts, err := convert(m.Parts, m.part)
	if err != nil {
		return nil, fmt.Errorf("part %w", err)
	}
	parts = slices.DeleteFunc(parts, func(p schema.ContentPart) bool { return p == nil })
	calls, _ := convert(m.ToolCalls, func(c callMirror) (schema.ToolCall, error) { return schema.ToolCall(c), nil })
	unpacked, err := unpack(m.Metadata)
	metadata, isMap := unpacked.(map[string]any)
	if err != nil || !isMap && m.Metadata != nil { // the text of err can quote the metadata
		return nil, errors.New("its metadata is no map, or has a tag that Encode does not write")
	}
	switch m.Role {
	case schema.RoleSystem:
		return &schema.SystemMessage{Parts: parts, Metadata: metadata}, nil
	case schema.RoleHuman:
		return &schema.HumanMessage{Parts: parts, Metadata: metadata}, nil
	case schema.RoleAI:
		return &schema.AIMessage{Parts: parts, ToolCalls: calls, Usage: schema.Usage(m.Usage), ModelID: m.ModelID, Metadata: metadata}, nil
	case schema.RoleTool:
		return &schema.ToolMessage{ToolCallID: m.ToolCallID, Parts: parts, Metadata: metadata}, nil
	}
	return nil, errors.New("its role is unknown")
}

func (m mirror) part(p partMirror) (schema.ContentPart, error) {
	switch p.Type {
	case schema.ContentText:
		return schema.TextPart{Text: p.Text}, nil
	case schema.ContentThinking:
		return schema.ThinkingPart{Text: p.Text, Signature: p.Signature}, nil
	case schema.ContentImage:
		return schema.ImagePart{MimeType: p.MimeType, URL: p.URL, Data: p.Data}, nil
	case schema.ContentVideo:
		return schema.VideoPart{MimeType: p.MimeType, URL: p.URL, Data: p.Data}, nil
	case schema.ContentAudio:
		return schema.AudioPart{Format: p.Format, SampleRate: p.SampleRate, Data: p.Data}, nil
	case schema.ContentFile:
		return schema.FilePart{Name: p.Name, MimeType: p.MimeType, Data: p.Data}, nil
	}
	if m.Version > formatVersion {
		return nil, nil
	}
	return nil, errors.New("has an unknown type")
}

// convert converts a list. A nil list stays nil, and an error begins with the index.
func convert[A, B any](list []A, each func(A) (B, error)) (converted []B, err error) {
	if list != nil {
		converted = make([]B, len(list))
	}
	for i, a := range list {
		if converted[i], err = each(a); err != nil {
			return nil, fmt.Errorf("%d %w", i, err)
		}
	}
	return converted, nil
}
