package belugamemory_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"
	"pgregory.net/rapid"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

var update = flag.Bool("update", false, "write testdata/golden anew")

// codec is the subject of the tests.
var codec belugamemory.Codec

// golden has a message of each role, every part, and metadata of every type. All versions must read
// these texts.
func golden() map[string]schema.Message {
	return map[string]schema.Message{
		"system": &schema.SystemMessage{Parts: []schema.ContentPart{}, Metadata: map[string]any{}},
		"human": &schema.HumanMessage{
			Parts: []schema.ContentPart{
				schema.TextPart{Text: "Where is \"my\" <order> & co.?\nC:\\orders\t\r\b\f\x00\x1f\x7f\u2028 Grüße 👋"},
				schema.TextPart{},
				schema.ImagePart{Data: []byte{0, 1, 254, 255}, MimeType: "image/png", URL: "https://example.org/a?b=1&c=2"},
				schema.AudioPart{Data: []byte{}, Format: "wav", SampleRate: 44100},
				schema.VideoPart{Data: []byte("video"), MimeType: "video/mp4", URL: "https://example.org/v"},
				schema.FilePart{Data: []byte("%PDF"), Name: "order.pdf", MimeType: "application/pdf"},
				schema.ImagePart{},
			},
			Metadata: map[string]any{"channel": "web"},
		},
		"ai": &schema.AIMessage{
			Parts: []schema.ContentPart{schema.ThinkingPart{Text: "I look it up.", Signature: "c2ln"},
				schema.TextPart{Text: "One moment."}},
			ToolCalls: []schema.ToolCall{
				{ID: "call_1", Name: "find_order", Arguments: `{"customer":"c-7"}`},
				{},
			},
			Usage:   schema.Usage{InputTokens: 12, OutputTokens: 34, TotalTokens: 46, CachedTokens: 5, ReasoningTokens: 6},
			ModelID: "model-1",
			Metadata: map[string]any{
				"nil": nil, "true": true, "false": false, "string": "text", "bytes that are no text": "\xff\xfe",
				"int": -1, "int8": int8(math.MinInt8), "int16": int16(math.MinInt16), "int32": int32(math.MinInt32),
				"int64": int64(math.MinInt64), "uint": uint(1), "uint8": uint8(math.MaxUint8), "uint16": uint16(math.MaxUint16),
				"uint32": uint32(math.MaxUint32), "uint64": uint64(math.MaxUint64),
				"float32": float32(0.1), "float32 NaN": float32(math.NaN()), "float32 -0": float32(math.Copysign(0, -1)),
				"float64": 0.1, "float64 whole": 1e20, "float64 large": math.MaxFloat64,
				"float64 small": math.SmallestNonzeroFloat64, "float64 -0": math.Copysign(0, -1),
				"float64 NaN": math.NaN(), "float64 +Inf": math.Inf(1), "float64 -Inf": math.Inf(-1),
				"bytes": []byte("bytes"), "bytes empty": []byte{}, "bytes nil": []byte(nil),
				"strings": []string{"a", "\xff"}, "strings empty": []string{}, "strings nil": []string(nil),
				"list": []any{1.5, "a", nil, []any{2}}, "list empty": []any{}, "list nil": []any(nil),
				"map":       map[string]any{"b": 1.0, "a": map[string]any{"c": true}},
				"map empty": map[string]any{}, "map nil": map[string]any(nil),
				"map like a tag": map[string]any{"$int": "5", "plain": 1.0}, "map of bytes": map[string]any{"\xff": "a"},
				"string map": map[string]string{"b": "1", "a": "\xff"}, "string map empty": map[string]string{},
				"string map nil": map[string]string(nil), "string map like a tag": map[string]string{"$int": "5"},
				"time":     time.Date(2026, 4, 1, 12, 30, 0, 123456789, time.FixedZone("", 2*60*60)),
				"time UTC": time.Date(2026, 4, 1, 12, 30, 0, 0, time.UTC), "time zero": time.Time{},
				"time of a local mean zone": time.Date(1930, 1, 1, 0, 0, 0, 0, time.FixedZone("", 19*60+32)),
				"duration":                  90 * time.Second, "duration longest": time.Duration(math.MinInt64),
				"number": json.Number("12.50"), "time of a second": zone(-1),
				"plan": []map[string]any{{"$ref": "a", "step": 1}},
			},
		},
		"tool": &schema.ToolMessage{
			ToolCallID: "call_1",
			Parts:      []schema.ContentPart{schema.TextPart{Text: "on its way"}},
			Metadata:   map[string]any{"$took": 25 * time.Millisecond, "role": "mine"},
		},
	}
}

// Sessions outlive versions of this package and of Go. If this fails, the change needs a new
// version of the format and a reader for both.
func TestCodec_formatStays(t *testing.T) {
	for name, message := range golden() {
		path := filepath.Join("testdata", "golden", name+".json")
		got := encode(t, message)
		if *update {
			must(t, os.WriteFile(path, append(got, '\n'), 0o644))
		}
		want, err := os.ReadFile(path)
		must(t, err)
		want = bytes.TrimSuffix(want, []byte("\n"))
		for range 20 {
			if got := encode(t, message); !bytes.Equal(got, want) {
				t.Fatalf("%s is encoded as\n%s\nwant\n%s", name, got, want)
			}
		}
		if ai, ok := message.(*schema.AIMessage); ok {
			ai.Metadata["plan"] = []any{map[string]any{"$ref": "a", "step": json.Number("1")}}
		}
		if decoded := decode(t, want); !same(decoded, message) {
			t.Errorf("%s is decoded as\n%#v\nwant\n%#v", name, decoded, message)
		}
	}
}

func TestCodec_Text_isTheMessageText(t *testing.T) {
	parts := []schema.ContentPart{schema.TextPart{Text: "a"}, schema.ThinkingPart{Text: "b"}, nil,
		schema.TextPart{Text: "c"}, schema.TextPart{}}
	for _, message := range []schema.Message{&schema.SystemMessage{Parts: parts}, &schema.HumanMessage{Parts: parts},
		&schema.AIMessage{Parts: parts}, &schema.ToolMessage{Parts: parts}} {
		if got, want := codec.Text(message), message.(interface{ Text() string }).Text(); got != want || got != "a\nc\n" {
			t.Errorf("%T: got %q, want %q", message, got, want)
		}
	}
}

func TestCodec_Document_addsTheRole(t *testing.T) {
	metadata := map[string]any{"a": 1}
	message := &schema.AIMessage{Parts: schema.NewAIMessage("text").Parts, Metadata: metadata}
	want := schema.Document{Content: "text", Metadata: map[string]any{"a": 1, "role": "ai"}}
	document := codec.Document(message)
	if !reflect.DeepEqual(document, want) {
		t.Errorf("got %+v, want %+v", document, want)
	}
	document.Metadata["b"] = 2
	if len(metadata) != 1 {
		t.Error("the document writes in the message's metadata")
	}

	metadata["role"] = "critic"
	if got := codec.Document(message).Metadata["role"]; got != "critic" {
		t.Errorf("the message's own role became %v", got)
	}
	got := codec.Document(schema.NewToolMessage("c", "t")).Metadata
	if !reflect.DeepEqual(got, map[string]any{"role": "tool"}) {
		t.Errorf("without metadata: %v", got)
	}
}

func TestCodec_nil_textAndDocumentEmpty(t *testing.T) {
	for _, message := range []schema.Message{nil, (*schema.SystemMessage)(nil), (*schema.HumanMessage)(nil),
		(*schema.AIMessage)(nil),
		(*schema.ToolMessage)(nil), (*foreign)(nil), foreign{}} {
		text, document := codec.Text(message), codec.Document(message)
		if text != "" || !reflect.DeepEqual(document, schema.Document{}) {
			t.Errorf("%T: text %q, document %+v", message, text, document)
		}
	}
}

// foreign is a message type of another package.
type foreign struct{ schema.HumanMessage }

func (foreign) GetRole() schema.Role             { return schema.RoleHuman }
func (foreign) GetContent() []schema.ContentPart { return nil }
func (foreign) GetMetadata() map[string]any      { return nil }

func encode(t rapid.TB, message schema.Message) []byte {
	t.Helper()
	text, err := codec.Encode(message)
	if err != nil {
		t.Error(err)
	}
	return text
}

func decode(t rapid.TB, text []byte) schema.Message {
	t.Helper()
	message, err := codec.Decode(text)
	if err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return message
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same is reflect.DeepEqual with two exceptions. Times are equal if instant and offset are. Floats
// are equal if their bits are, except those of a NaN.
func same(a, b schema.Message) bool {
	return reflect.DeepEqual(comparableMessage(a), comparableMessage(b))
}

func comparableMessage(message schema.Message) any {
	c := reflect.New(reflect.TypeOf(message).Elem()).Elem()
	c.Set(reflect.ValueOf(message).Elem())
	metadata, _ := comparableValue(message.GetMetadata()).(map[string]any)
	c.FieldByName("Metadata").Set(reflect.ValueOf(metadata))
	return c.Interface()
}

func comparableValue(v any) any {
	type instant struct {
		seconds             int64
		nanoseconds, offset int
	}
	type bits32 uint32
	type bits64 uint64
	switch v := v.(type) {
	case float32:
		if v != v {
			return bits32(0x7fc00000)
		}
		return bits32(math.Float32bits(v))
	case float64:
		if v != v {
			return bits64(0x7ff8000000000000)
		}
		return bits64(math.Float64bits(v))
	case time.Time:
		_, offset := v.Zone()
		return instant{v.Unix(), v.Nanosecond(), offset}
	case []any:
		if v == nil {
			return v
		}
		list := make([]any, len(v))
		for i, each := range v {
			list[i] = comparableValue(each)
		}
		return list
	case map[string]any:
		if v == nil {
			return v
		}
		m := make(map[string]any, len(v))
		for key, each := range v {
			m[key] = comparableValue(each)
		}
		return m
	}
	return v
}

// refuses checks that Encode refuses a message. Its error does not show the text.
func refuses(t *testing.T, message schema.Message, want string) {
	t.Helper()
	text, err := codec.Encode(message)
	if err == nil || text != nil || !strings.Contains(err.Error(), want) ||
		strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\xff") {
		t.Errorf("%T: %s, %v, want %q", message, text, err, want)
	}
}

func TestCodec_refusesOtherMessages(t *testing.T) {
	refuses(t, nil, "it is nil or a <nil>; it must be a *schema.SystemMessage")
	refuses(t, (*schema.SystemMessage)(nil), "it is nil or a *schema.SystemMessage; ")
	refuses(t, (*schema.HumanMessage)(nil), "it is nil or a *schema.HumanMessage; ")
	refuses(t, (*schema.AIMessage)(nil), "it is nil or a *schema.AIMessage; ")
	refuses(t, (*schema.ToolMessage)(nil), "it is nil or a *schema.ToolMessage; ")
	refuses(t, foreign{}, "it is nil or a belugamemory_test.foreign; ")
	refuses(t, (*foreign)(nil), "it is nil or a *belugamemory_test.foreign; ")
}

type foreignPart struct{ schema.TextPart }

func TestCodec_refusesOtherParts(t *testing.T) {
	for want, part := range map[string]schema.ContentPart{
		"part 1 is a <nil>;": nil,
		"part 1 is a *schema.TextPart; it must be a schema.TextPart, ThinkingPart": &schema.TextPart{Text: "secret"},
		"part 1 is a *schema.ImagePart;":                                           (*schema.ImagePart)(nil),
		"part 1 is a *schema.AudioPart;":                                           &schema.AudioPart{},
		"part 1 is a *schema.VideoPart;":                                           &schema.VideoPart{},
		"part 1 is a *schema.FilePart;":                                            &schema.FilePart{},
		"part 1 is a *schema.ThinkingPart;":                                        &schema.ThinkingPart{},
		"part 1 is a belugamemory_test.foreignPart;":                               foreignPart{},
	} {
		refuses(t, &schema.HumanMessage{Parts: []schema.ContentPart{schema.TextPart{Text: "secret"}, part, nil}}, want)
	}
}

func TestCodec_invalidUTF8_refused(t *testing.T) {
	const s = "a\xffb"
	for _, part := range []schema.ContentPart{schema.TextPart{Text: s}, schema.ThinkingPart{Signature: s}, schema.ImagePart{URL: s},
		schema.AudioPart{Format: s}, schema.VideoPart{MimeType: s}, schema.FilePart{Name: s}} {
		refuses(t, &schema.HumanMessage{Parts: []schema.ContentPart{schema.TextPart{Text: "\ufffd"}, part}}, "part 1 is not valid UTF-8")
	}
	for _, call := range []schema.ToolCall{{Arguments: s}, {Name: s}, {ID: s}} {
		refuses(t, &schema.AIMessage{ToolCalls: []schema.ToolCall{call}}, "tool call 0 is not valid UTF-8")
	}
	for _, message := range []schema.Message{&schema.AIMessage{ModelID: s}, &schema.ToolMessage{ToolCallID: s}} {
		refuses(t, message, "its model ID or tool call ID is not valid UTF-8")
	}
}

// This version reads the messages of the next version. For later versions, the error says what to
// do.
func TestCodec_newerVersion(t *testing.T) {
	const text = `{"v":%,"role":"tool","tone":"warm","tool_call_id":"c","parts":[{"type":"hologram","text":"a"},` +
		`{"type":"text","text":"b","bold":true}]}`
	want := &schema.ToolMessage{ToolCallID: "c", Parts: []schema.ContentPart{schema.TextPart{Text: "b"}}}
	for version, reason := range map[string]string{
		"1": "a field is unknown", "2": "", "10": "its version is 10",
		"3": "its version is 3, and this package reads versions 1 to 2",
		"0": "does not begin with", "-1": "does not begin with", "1.": "does not begin with", `"1"`: "does not begin with",
	} {
		message, err := codec.Decode([]byte(strings.Replace(text, "%", version, 1)))
		switch {
		case reason == "" && (err != nil || !reflect.DeepEqual(message, want)):
			t.Errorf("version %s: %#v, %v", version, message, err)
		case reason != "" && (err == nil || message != nil || !strings.Contains(err.Error(), reason)):
			t.Errorf("version %s: %#v, %v, want %q", version, message, err, reason)
		}
	}
}

func TestCodec_Decode_refusesOtherTexts(t *testing.T) {
	const (
		message  = `{"v":1,"role":"ai"%}`
		part     = `{"v":1,"role":"human","parts":[%]}`
		metadata = `{"v":1,"role":"human","metadata":%}`
		value    = `{"v":1,"role":"human","metadata":{"a":%}}`
	)
	for in, texts := range map[string][]string{
		"%": {"", "null", "[]", "{}", `"secret"`, `{"v":1}`, `{"v":1,"role":"secret"}`,
			`{"role":"ai","v":1}`, `{"v":1,"role":5}`},
		`{"v":1,"role":"ai"}%`: {" ", "\n", "\x00", "secret", "}", `{"v":1,"role":"ai"}`},
		message: {`,"secret":1`, `,`, `"parts":[]`, `,"usage":{"secret":2}`, `,"usage":{"input_tokens":1.5}`, `,"model_id":5`,
			`,"tool_calls":[{"secret":""}]`, ",\"model_id\":\"\xff\"", ",\"model_id\":\"\n\""},
		part: {`null`, `{}`, `5`, `{"type":"secret"}`, `{"type":"text","secret":""}`, `{"type":"image","data":"secret!"}`,
			`{"type":"audio","sample_rate":99999999999999999999}`, `{"type":"text"},`},
		metadata: {`[]`, `"secret"`, `5`, `{"$int":"5"}`, `{"a":1,"$b":1}`, `{"a":1,"$int":"5"}`, `{1:1}`, `{"$\"a\"":1}`},
		value: {``, `01`, `1e999`, `NaN`, `{"$secret":"1"}`, `{"$":1}`, `{"$int":"x"}`, `{"$int8":"128"}`, `{"$uint":"-1"}`,
			`{"$int":5}`,
			`{"$[]string":[1]}`, `{"$[]string":"secret"}`, `{"$map[string]string":{"a":1}}`, `{"$time.Duration":"secret"}`,
			`{"$time.Time":"secret"}`, `{"$time.Time":"secret 0"}`, `{"$[]uint8":"secret!"}`, `{"$string":"secret"}`,
			`{"$int":"5 secrets"}`, `{"$int":"0x10"}`, `{"$uint":" 5"}`, `{"$int":null}`, `{"$float32":"1e5secret"}`,
			`{"$float64":"1.5"}`,
			`{"$time.Time":"2020-01-01T00:00:00 0 secret"}`, `{"$time.Duration":"60s"}`, `{"$[]uint8":"QQ=\n="}`,
			`{"$string":"\"a\""}`,
			`{"$[]string":""}`, `{"$map[string]string":"secret"}`, `{"$[]interface {}":[]}`},
	} {
		for _, each := range texts {
			text := strings.Replace(in, "%", each, 1)
			message, err := codec.Decode([]byte(text))
			if err == nil || message != nil {
				t.Errorf("%s is decoded as %+v", text, message)
			} else if strings.Contains(err.Error(), "secret") ||
				!strings.HasPrefix(err.Error(), "belugamemory: cannot decode a message: ") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	for name, message := range golden() {
		text := encode(t, message)
		for n := range text {
			if message, err := codec.Decode(text[:n]); err == nil {
				t.Errorf("the first %d bytes of %s are decoded as %+v", n, name, message)
			}
		}
	}
}
