package belugamemory_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// Whatever bytes are decoded are those that the message is encoded as.
func FuzzDecode(f *testing.F) {
	for _, message := range golden() {
		text := encode(f, message)
		f.Add(text)
		f.Add(bytes.ReplaceAll(text, []byte(`"v":1`), []byte(`"v":2`)))
		f.Add(bytes.ReplaceAll(text, []byte(`,`), []byte(` , `)))
		f.Add(text[:len(text)/2])
	}
	for _, metadata := range []string{`[]`,
		`{"a":{"$int":"5"}}`, `{"$map":[["$int","5"]]}`, `{"a":{"$time":"2026-04-01T00:00:00Z"}}`, `{"a":1e21}`} {
		f.Add([]byte(`{"v":1,"role":"tool","metadata":` + metadata + `}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		given := bytes.Clone(text)
		message, err := codec.Decode(text)
		if !bytes.Equal(text, given) {
			t.Fatalf("%q was changed to %q", given, text)
		}
		if err != nil {
			return
		}
		if !json.Valid(text) {
			t.Errorf("%q is no JSON", text)
		}
		again, err := codec.Encode(message)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%q is encoded again as %q, %v", text, again, err)
		}
		clear(text) // what was decoded does not rest on it
		if decoded, err := codec.Decode(again); err != nil || !same(decoded, message) {
			t.Fatalf("%q is decoded as %#v and %#v, %v", again, message, decoded, err)
		}
		codec.Text(message)
		codec.Document(message)
	})
}

// Any strings, keys and bytes come back.
func FuzzEncode(f *testing.F) {
	f.Add("text", "key", "value", []byte("data"))
	f.Add("\xff\n\"\\", "$int", `{"$int":"5"}`, []byte{})
	f.Add("", "\xff", "\u2028\ufffd", []byte(nil))
	f.Fuzz(func(t *testing.T, text, key, value string, data []byte) {
		message := &schema.HumanMessage{
			Parts: []schema.ContentPart{schema.TextPart{Text: text}, schema.FilePart{Name: key, Data: data}},
			Metadata: map[string]any{key: value, key + "+": map[string]any{key: data, value: []string{text}},
				text: map[string]string{key: value, value: text}, "nested": []any{map[string]any{key: value}, text}},
		}
		encoded := encode(t, message)
		if decoded := decode(t, encoded); !reflect.DeepEqual(decoded, message) || !json.Valid(encoded) {
			t.Errorf("%#v comes back as %#v from %s", message, decoded, encoded)
		}
	})
}
