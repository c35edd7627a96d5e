package belugamemory_test

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Encode writes every decoded message, and Decode reads it again.
func FuzzDecode(f *testing.F) {
	for _, message := range golden() {
		text := encode(f, message)
		f.Add(text)
		f.Add(bytes.ReplaceAll(text, []byte(`"v":1`), []byte(`"v":2`)))
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte(`{"v":1,"role":"tool","metadata":{"a":{"$time.Time":"2026-04-01T00:00:00 -1"},"$\"\\xff\"":1e21}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		given := bytes.Clone(text)
		message, err := codec.Decode(text)
		if !bytes.Equal(text, given) {
			t.Fatalf("%q was changed to %q", given, text)
		}
		if err != nil || bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) > 100 {
			return
		}
		if !json.Valid(text) {
			t.Errorf("%q is no JSON", text)
		}
		clear(text) // the message does not share its memory
		if decoded := decode(t, encode(t, message)); !same(decoded, message) {
			t.Fatalf("%q is decoded as %#v and then as %#v", given, message, decoded)
		}
		codec.Text(message)
		codec.Document(message)
	})
}
