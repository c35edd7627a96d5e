package belugamemory_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

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
