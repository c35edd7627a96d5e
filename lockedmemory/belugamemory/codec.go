package belugamemory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/packed"
)

// Codec stores Beluga's messages, each as one JSON text that redis-cli can show:
//
//	{"v":1,"role":"human","parts":[{"type":"text","text":"Where is my order?"}],"metadata":{"a":true}}
//
// A decoded message is deeply equal to the encoded one: nil stays nil, and empty stays empty.
// Only metadata has exceptions. Values of these Go types keep type and value, also in each other:
//
//   - nil, bool, string, json.Number, time.Time, time.Duration
//   - int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64
//   - []byte, []string, []any, map[string]string, map[string]any
//
// Strings may hold any bytes, floats any number; a NaN loses its payload bits. A time.Time keeps
// its instant and offset, and loses the name of its zone: compare times with Equal. Values of all
// other types are stored by encoding/json and come back as JSON types, numbers as json.Number: []int{1}
// as []any{json.Number("1")}.
//
// Encode refuses nil and other types of messages, other types of parts and pointers to parts, and
// text outside metadata that is not valid UTF-8. It refuses metadata that encoding/json cannot
// store, such as a channel, a cycle, a NaN, a year above 9999, or a MarshalJSON that fails or panics.
// In a struct or a json.RawMessage there, it refuses text that is not UTF-8, and half a surrogate
// pair. Lists and maps nest at most 100 levels deep, in metadata and in the JSON of each other type.
// Errors name keys and Go types, no texts or values.
//
// This package writes version 1 and reads versions 1 and 2. It ignores unknown fields and parts of
// version 2, so instances of both versions can share sessions during an update. Decode refuses all
// other unknown fields, parts, roles, tags and versions, and texts that are not one message.
//
// Equal messages become equal bytes, if the MarshalJSON methods in the metadata and the release of
// Go are the same, and MarshalText differs for the keys of a map. A session store compares these
// bytes when an ID is used again. If they differ, SaveOnce returns sessionstore.ErrIDConflict.
type Codec struct{}

// formatVersion is the version that Encode writes. Every version begins with {"v": and its number.
const formatVersion = 1

// Encode implements [sessionstore.Codec].
func (Codec) Encode(message schema.Message) ([]byte, error) {
	if !known(message) {
		return nil, fmt.Errorf("belugamemory: cannot encode a message: it is nil or a %T; it must be a "+
			"*schema.SystemMessage, *schema.HumanMessage, *schema.AIMessage or *schema.ToolMessage", message)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // people read the text in redis-cli
	m, err := mirrorOf(message)
	if err == nil {
		err = encoder.Encode(m)
	}
	if err != nil {
		return nil, fmt.Errorf("belugamemory: cannot encode a message: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Decode implements [sessionstore.Codec]. The message does not refer to the bytes of text.
func (Codec) Decode(text []byte) (schema.Message, error) {
	message, err := decode(text)
	if err != nil {
		err = fmt.Errorf("belugamemory: cannot decode a message: %w", err)
	}
	return message, err
}

func decode(text []byte) (schema.Message, error) {
	rest, found := bytes.CutPrefix(text[:min(len(text), 32)], []byte(`{"v":`))
	digits, _, _ := bytes.Cut(rest, []byte(","))
	version, err := strconv.Atoi(string(digits))
	switch {
	case !found || err != nil || version < 1:
		return nil, errors.New(`it does not begin with {"v":1, as all messages of this package do`)
	case version > formatVersion+1:
		return nil, fmt.Errorf("its version is %d, and this package reads versions 1 to %d: update this instance",
			version, formatVersion+1)
	case !utf8.Valid(text):
		return nil, errors.New("it is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if version == formatVersion {
		decoder.DisallowUnknownFields()
	}
	var stored mirror
	if err := decoder.Decode(&stored); err != nil { // its text can quote the message
		return nil, fmt.Errorf("it is no JSON, or a field is unknown or of another type (%T)", err)
	}
	if decoder.InputOffset() != int64(len(text)) {
		return nil, errors.New("more bytes follow it")
	}
	return stored.message()
}

// Text implements [sessionstore.Codec] with the message's own Text: the text parts, one a line. It
// is empty for nil and other types of messages.
func (Codec) Text(message schema.Message) string {
	if !known(message) {
		return ""
	}
	return message.(interface{ Text() string }).Text()
}

// Document implements [sessionstore.Codec]. Content is the text. Metadata is a flat copy of the
// message's own, with the role as a string under "role" unless the message uses that key. The
// document of nil and other types of messages is empty.
func (c Codec) Document(message schema.Message) schema.Document {
	if !known(message) {
		return schema.Document{}
	}
	metadata := map[string]any{"role": string(message.GetRole())}
	maps.Copy(metadata, message.GetMetadata())
	return schema.Document{Content: c.Text(message), Metadata: metadata}
}

// known reports whether message is one of Beluga's four, and not nil.
func known(message schema.Message) bool {
	switch message.(type) {
	case *schema.SystemMessage, *schema.HumanMessage, *schema.AIMessage, *schema.ToolMessage:
		return !reflect.ValueOf(message).IsNil()
	}
	return false
}

// mirror is a message as JSON. Zero values are left out; empty lists, maps and bytes are not.
type mirror struct {
	Version    int          `json:"v"`
	Role       schema.Role  `json:"role"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
	Parts      []partMirror `json:"parts,omitzero"`
	ToolCalls  []callMirror `json:"tool_calls,omitzero"`
	Usage      usageMirror  `json:"usage,omitzero"`
	ModelID    string       `json:"model_id,omitempty"`
	Metadata   any          `json:"metadata,omitempty"` // as packed.Value returns it
}

// partMirror has the fields of all parts. Data is last, so that redis-cli shows the others first.
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
		if m.ToolCalls, err = packed.Each(message.ToolCalls, mirrorOfCall); err != nil {
			return m, fmt.Errorf("tool call %w", err)
		}
	case *schema.ToolMessage:
		m.ToolCallID = message.ToolCallID
	}
	if err := checkUTF8(m.ModelID, m.ToolCallID); err != nil {
		return m, fmt.Errorf("its model ID or tool call ID %w", err)
	}
	if m.Parts, err = packed.Each(message.GetContent(), mirrorOfPart); err != nil {
		return m, fmt.Errorf("part %w", err)
	}
	if metadata := message.GetMetadata(); metadata != nil {
		if packed.Deep(metadata, packed.MaxDepth) {
			return m, fmt.Errorf("its metadata nests more than %d levels deep, or contains itself", packed.MaxDepth)
		}
		if m.Metadata, err = packed.Value(metadata); err != nil {
			return m, fmt.Errorf("metadata %w", err)
		}
	}
	return m, nil
}

func mirrorOfCall(call schema.ToolCall) (callMirror, error) {
	return callMirror(call), checkUTF8(call.ID, call.Name, call.Arguments)
}

func mirrorOfPart(part schema.ContentPart) (m partMirror, err error) {
	switch p := part.(type) {
	case schema.TextPart:
		m.Text = p.Text
	case schema.ThinkingPart:
		m.Text, m.Signature = p.Text, p.Signature
	case schema.ImagePart:
		m.Data, m.MimeType, m.URL = p.Data, p.MimeType, p.URL
	case schema.VideoPart:
		m.Data, m.MimeType, m.URL = p.Data, p.MimeType, p.URL
	case schema.AudioPart:
		m.Data, m.Format, m.SampleRate = p.Data, p.Format, p.SampleRate
	case schema.FilePart:
		m.Data, m.Name, m.MimeType = p.Data, p.Name, p.MimeType
	default:
		return m, fmt.Errorf("is a %T; it must be a schema.TextPart, ThinkingPart, ImagePart, VideoPart, AudioPart or "+
			"FilePart, and no pointer to one", part)
	}
	m.Type = part.PartType()
	return m, checkUTF8(m.Text, m.Signature, m.Name, m.MimeType, m.URL, m.Format)
}

// checkUTF8 refuses a text that is not UTF-8: encoding/json would change the text.
func checkUTF8(texts ...string) error {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return errors.New("is not valid UTF-8: mend it with strings.ToValidUTF8, or store it in the metadata")
		}
	}
	return nil
}

// message leaves out parts of unknown types if m is newer than this package.
func (m mirror) message() (schema.Message, error) {
	parts, err := packed.Each(m.Parts, m.part)
	if err != nil {
		return nil, fmt.Errorf("part %w", err)
	}
	parts = slices.DeleteFunc(parts, func(p schema.ContentPart) bool { return p == nil })
	calls, _ := packed.Each(m.ToolCalls, func(c callMirror) (schema.ToolCall, error) { return schema.ToolCall(c), nil })
	metadata, isMap := packed.Unpack(m.Metadata).(map[string]any)
	if m.Metadata != nil && !(isMap && packed.Is(m.Metadata, metadata)) {
		return nil, errors.New("its metadata is no map, or has a tag that Encode does not write")
	}
	switch m.Role {
	case schema.RoleSystem:
		return &schema.SystemMessage{Parts: parts, Metadata: metadata}, nil
	case schema.RoleHuman:
		return &schema.HumanMessage{Parts: parts, Metadata: metadata}, nil
	case schema.RoleAI:
		usage := schema.Usage(m.Usage)
		return &schema.AIMessage{Parts: parts, ToolCalls: calls, Usage: usage, ModelID: m.ModelID, Metadata: metadata}, nil
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
		return schema.ImagePart{Data: p.Data, MimeType: p.MimeType, URL: p.URL}, nil
	case schema.ContentVideo:
		return schema.VideoPart{Data: p.Data, MimeType: p.MimeType, URL: p.URL}, nil
	case schema.ContentAudio:
		return schema.AudioPart{Data: p.Data, Format: p.Format, SampleRate: p.SampleRate}, nil
	case schema.ContentFile:
		return schema.FilePart{Data: p.Data, Name: p.Name, MimeType: p.MimeType}, nil
	}
	if m.Version > formatVersion {
		return nil, nil
	}
	return nil, errors.New("has an unknown type")
}
