package belugamemory_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"
	"pgregory.net/rapid"
)

func init() {
	_ = flag.Set("rapid.checks", "2000")
	_ = flag.Set("rapid.nofailfile", "true") // seeds are printed, and files would be left in the source
}

// Every message is decoded as it was encoded. The messages have all fields of their types, so a field that
// a later Beluga adds is not lost silently.
func TestCodec_keepsRandomMessages(t *testing.T) {
	messages := messages()
	rapid.Check(t, func(t *rapid.T) {
		message := messages.Draw(t, "message")
		text := encode(t, message)
		decoded := decode(t, text)
		if !same(decoded, message) || !json.Valid(text) {
			t.Fatalf("%#v comes back as %#v from %s", message, decoded, text)
		}
		if again := encode(t, decoded); string(again) != string(text) {
			t.Fatalf("%s is encoded again as %s", text, again)
		}
	})
}

func messages() *rapid.Generator[schema.Message] {
	// Texts with special characters, and texts that look like tags.
	text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "text ", "$", "$int", "$map", `"`, `\`, "\n", "\t",
		"\x00", "\x1f", "\x7f", "\xff", "\xe2\x82", "é", "\ufffd", "\u2028", "😀", "<&>", "null", "{", "]",
		`{"$int":"1"}`, "\ufeff"}), 0, 3),
		func(pieces []string) string { return strings.Join(pieces, "") })

	var value *rapid.Generator[any]
	values := rapid.Deferred(func() *rapid.Generator[any] { return value })
	anyMap, texts, bytes := table(text, values), list(text), list(rapid.Byte())
	value = rapid.OneOf(rapid.Just[any](nil), text.AsAny(), rapid.Bool().AsAny(),
		rapid.Int().AsAny(), rapid.Int8().AsAny(), rapid.Int16().AsAny(), rapid.Int32().AsAny(), rapid.Int64().AsAny(),
		rapid.Uint().AsAny(), rapid.Uint8().AsAny(), rapid.Uint16().AsAny(), rapid.Uint32().AsAny(), rapid.Uint64().AsAny(),
		rapid.Float32().AsAny(), rapid.Map(rapid.Uint32(), math.Float32frombits).AsAny(),
		rapid.Float64().AsAny(), rapid.Map(rapid.Uint64(), math.Float64frombits).AsAny(),
		rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0.01}).AsAny(),
		rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }).AsAny(),
		rapid.Custom(func(t *rapid.T) time.Time {
			offset := rapid.OneOf(rapid.IntRange(-100, 100), rapid.IntRange(-90000, 90000)).Draw(t, "offset")
			at := time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanoseconds"))
			return at.In(time.FixedZone("zone", offset))
		}).AsAny(),
		rapid.Map(rapid.Uint64(), func(n uint64) json.Number { return json.Number(strconv.FormatUint(n, 10)) }).AsAny(),
		bytes.AsAny(), texts.AsAny(), table(text, text).AsAny(), list(values).AsAny(), anyMap.AsAny())

	config := rapid.MakeConfig{Types: map[reflect.Type]*rapid.Generator[any]{
		reflect.TypeFor[string](): rapid.Map(text,
			func(s string) string { return strings.ToValidUTF8(s, "") }).AsAny(),
		reflect.TypeFor[[]byte]():         bytes.AsAny(),
		reflect.TypeFor[map[string]any](): anyMap.AsAny(),
	}}
	config.Types[reflect.TypeFor[[]schema.ToolCall]()] = list(rapid.MakeCustom[schema.ToolCall](config)).AsAny()
	config.Types[reflect.TypeFor[[]schema.ContentPart]()] = list(rapid.OneOf(
		part[schema.TextPart](config), part[schema.ImagePart](config), part[schema.AudioPart](config),
		part[schema.VideoPart](config), part[schema.FilePart](config), part[schema.ThinkingPart](config))).AsAny()
	return rapid.OneOf(message[schema.SystemMessage](config), message[schema.HumanMessage](config),
		message[schema.AIMessage](config), message[schema.ToolMessage](config))
}

func message[M any, P interface {
	*M
	schema.Message
}](config rapid.MakeConfig) *rapid.Generator[schema.Message] {
	return rapid.Map(rapid.MakeCustom[M](config), func(m M) schema.Message { return P(&m) })
}

func part[P schema.ContentPart](config rapid.MakeConfig) *rapid.Generator[schema.ContentPart] {
	return rapid.Map(rapid.MakeCustom[P](config), func(p P) schema.ContentPart { return p })
}

// list generates a nil list, an empty list or a few elements.
func list[E any](element *rapid.Generator[E]) *rapid.Generator[[]E] {
	return rapid.OneOf(rapid.Just([]E(nil)), rapid.SliceOfN(element, 0, 4))
}

// table generates a nil map, an empty map or a few entries.
func table[V any](keys *rapid.Generator[string], values *rapid.Generator[V]) *rapid.Generator[map[string]V] {
	return rapid.OneOf(rapid.Just(map[string]V(nil)), rapid.MapOfN(keys, values, 0, 4))
}

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
