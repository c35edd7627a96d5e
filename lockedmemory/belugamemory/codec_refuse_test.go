package belugamemory_test

import (
	"strings"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

func TestCodec_refusesWhatIsNoMessage(t *testing.T) {
	for _, c := range []struct {
		message schema.Message
		want    string
	}{
		{nil, "it is nil"},
		{(*schema.SystemMessage)(nil), "it is a nil pointer to a message of role system"},
		{(*schema.HumanMessage)(nil), "it is a nil pointer to a message of role human"},
		{(*schema.AIMessage)(nil), "it is a nil pointer to a message of role ai"},
		{(*schema.ToolMessage)(nil), "it is a nil pointer to a message of role tool"},
		{foreign{}, "it is a belugamemory_test.foreign; it must be a *schema.SystemMessage"},
		{(*foreign)(nil), "it is a *belugamemory_test.foreign; it must be a *schema.SystemMessage"},
	} {
		if text, err := codec.Encode(c.message); err == nil || text != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %s, %v, want %q", c.message, text, err, c.want)
		}
	}
}

type foreignPart struct{ schema.TextPart }

func TestCodec_refusesWhatIsNoPart(t *testing.T) {
	for _, c := range []struct {
		part schema.ContentPart
		want string
	}{
		{nil, "part 1 is nil"},
		{&schema.TextPart{Text: "secret"}, "part 1 is a *schema.TextPart; it must be a schema.TextPart, ImagePart"},
		{(*schema.ImagePart)(nil), "part 1 is a *schema.ImagePart;"},
		{&schema.AudioPart{}, "part 1 is a *schema.AudioPart;"},
		{&schema.VideoPart{}, "part 1 is a *schema.VideoPart;"},
		{&schema.FilePart{}, "part 1 is a *schema.FilePart;"},
		{&schema.ThinkingPart{}, "part 1 is a *schema.ThinkingPart;"},
		{foreignPart{}, "part 1 is a belugamemory_test.foreignPart;"},
	} {
		message := &schema.HumanMessage{Parts: []schema.ContentPart{schema.TextPart{Text: "secret"}, c.part, nil}}
		text, err := codec.Encode(message)
		if err == nil || text != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%T: %s, %v, want %q", c.part, text, err, c.want)
		}
	}
}

func TestCodec_refusesNewerFormats(t *testing.T) {
	for _, text := range []string{`{"v":2}`, `{"v":2,"role":"human"}`, `{"v":10,"other":[]}`, `{"v":2 `} {
		if _, err := codec.Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), "written by a newer version of this package") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCodec_Decode_refusesWhatEncodeCannotHaveWritten(t *testing.T) {
	const (
		human    = `{"v":1,"role":"human"%}`
		ai       = `{"v":1,"role":"ai"%}`
		part     = `{"v":1,"role":"human","parts":[{%}]}`
		text     = `{"v":1,"role":"human","parts":[{"type":"text","text":%}]}`
		image    = `{"v":1,"role":"human","parts":[{"type":"image","data":%}]}`
		metadata = `{"v":1,"role":"human","metadata":%}`
		value    = `{"v":1,"role":"human","metadata":{"a":%}}`
	)
	for _, c := range []struct {
		reason, in string
		texts      []string
	}{
		{"no message", "%", []string{"", " ", "null", "[]", "{}", `"secret"`, `{"v":1}`, `{"v":1,"role":"secret"}`, `{"role":"human","v":1}`,
			`{"v":1,"role":`}},
		{"no version", `{"v":%,"role":"human"}`, []string{"", "0", "01", "-1", "1.0", `"1"`, "null", "99999999999999999999"}},
		{"more text", `{"v":1,"role":"human"}%`, []string{" ", "\n", "\x00", `{"v":1,"role":"human"}`, "secret"}},
		{"spaces", "%", []string{` {"v":1,"role":"human"}`, `{"v":1, "role":"human"}`, `{ "v":1,"role":"human"}`, `{"v":1,"role":"human" }`}},
		{"unknown fields", human, []string{`,"secret":1`, `,"Parts":[]`, `,"tool_calls":[]`, `,"model_id":"m"`, `,`, `"parts":[]`}},
		{"unknown fields", ai, []string{`,"usage":{"input_tokens":1,"secret":2}`, `,"tool_calls":[{"id":"1","secret":""}]`}},
		{"unknown fields", part, []string{`"type":"text","url":"secret"`, `"type":"image","text":"secret"`}},
		{"twice, or not in order", human, []string{`,"metadata":{},"parts":[]`, `,"parts":[],"parts":[]`}},
		{"twice, or not in order", part, []string{`"text":"a","type":"text"`, `"type":"text","type":"text"`}},
		{"twice, or not in order", metadata, []string{`{"b":1,"a":1}`, `{"a":1,"a":1}`, `{"$map":[["$a",1],["$a",1]]}`}},
		{"zero values", human, []string{`,"parts":null`, `,"metadata":null`, `,"metadata":{"$map":null}`}},
		{"zero values", ai, []string{`,"usage":{}`, `,"usage":{"input_tokens":0}`, `,"model_id":""`, `,"tool_calls":null`}},
		{"zero values", part, []string{`"type":"text","text":""`, `"type":"image","data":null`}},
		{"no parts", human, []string{`,"parts":[null]`, `,"parts":[`, `,"parts":{}`, `,"parts":[{"type":"text"},]`, `,"parts":[,{"type":"text"}]`,
			`,"parts":[{"type":"text"}{"type":"text"}]`}},
		{"no parts", part, []string{``, `"type":"secret"`, `"type":"audio","sample_rate":1.5`, `"type":"audio","sample_rate":+1`,
			`"type":"audio","sample_rate":99999999999999999999`, `"type":"audio","sample_rate":"1"`}},
		{"no base64", image, []string{`"secret!"`, `"AA"`, `"AB=="`, "\"AA\n==\"", `"`, `{"$base64":"/w=="}`}},
		{"no string", text, []string{`5`, `null`, `"secret`, "\"\xff\"", "\"\n\"", `"\u0061"`, `"\/"`, `"\u000A"`, `"\u001F"`, `"\`, `"\u00`,
			`"\ud83d\ude00"`, `"\x"`, `{"$base64":"YQ=="}`, `{"$bytes":"/w=="}`}},
		{"no map", metadata, []string{`[]`, `"secret"`, `5`, `{"$int":"5"}`, `{1:1}`, `{"a"}`, `{"a":1,"$b":1}`, `{"$map":[]}`,
			`{"$map":[["a",1]]}`, `{"$map":[["$a"]]}`, `{"$map":{"$a":1}}`}},
		{"no number", value, []string{``, `-`, `1.0`, `1e2`, `01`, `+1`, `.5`, `1e999`, `NaN`, `{"$float64":"1.5"}`, `{"$float32":"0.10"}`,
			`{"$float32":"1e99"}`, `{"$float32":"inf"}`}},
		{"no tag", value, []string{`{"$secret":"1"}`, `{"$":1}`, `{"$int`, `{"$`, `{"$int":5}`, `{"$int":"05"}`, `{"$int":"+5"}`,
			`{"$int":"1","b":2}`, `{"$int":null}`, `{"$int8":"128"}`, `{"$uint":"-1"}`, `{"$uint8":"256"}`, `{"$list":[]}`, `{"$strings":[1]}`,
			`{"$string_map":{"a":1}}`, `{"$string_map":{"$a":"1"}}`, `{"$string_map":[["a","1"]]}`, `{"$base64":"YQ=="}`}},
		{"no time", value, []string{`{"$duration":"90s"}`, `{"$duration":"secret"}`, `{"$time":"2026-04-01"}`,
			`{"$time":"2026-04-01T12:00:00+00:00"}`, `{"$time":"2026-04-01T12:00:00.10Z"}`, `{"$time":"2026-04-01T12:00:00+01:00:00"}`}},
	} {
		for _, each := range c.texts {
			text := strings.Replace(c.in, "%", each, 1)
			message, err := codec.Decode([]byte(text))
			if err == nil || message != nil {
				t.Errorf("%s: %s is decoded as %+v", c.reason, text, message)
			} else if strings.Contains(err.Error(), "secret") || !strings.HasPrefix(err.Error(), "belugamemory: cannot decode a message: ") {
				t.Errorf("%s: %s: %v", c.reason, text, err)
			}
		}
	}
}

func TestCodec_Decode_saysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		`{"v":0,"role":"human"}`:                                     "at byte 6: no number of a format before",
		`{"v":1,"role":"user"}`:                                      "at byte 20: the role before is unknown",
		`{"v":1,"role":"human","name":"a"}`:                          "at byte 21: unknown field, or not in its place",
		`{"v":1,"role":"human","parts":[{"type":"a"`:                 "at byte 42: the type of a part before is unknown",
		`{"v":1,"role":"human"} `:                                    "at byte 22: text after the end",
		`{"v":1,"role":"human","metadata":{"a":{"$b"`:                `at byte 42: ": must stand here`,
		`{"v":1,"role":"human","parts":[{"type":"text","text":""}]}`: "it says the same in another way than Encode does",
	} {
		if _, err := codec.Decode([]byte(text)); err == nil || err.Error() != "belugamemory: cannot decode a message: "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestCodec_Decode_refusesWhatWasCutOff(t *testing.T) {
	for name, message := range golden() {
		text := encode(t, message)
		for n := range text {
			if message, err := codec.Decode(text[:n]); err == nil {
				t.Errorf("the first %d bytes of %s are decoded as %+v", n, name, message)
			}
		}
	}
}
