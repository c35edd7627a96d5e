package belugamemory_test

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random messages")

// Whatever a message is made of, it comes back.
func TestCodec_keepsRandomMessages(t *testing.T) {
	t.Logf("repeat with -args -seed %d", *seed)
	r := random{rand.New(rand.NewPCG(*seed, 0))}
	for range 5000 {
		message := r.message()
		text := encode(t, message)
		decoded := decode(t, text)
		if !same(decoded, message) || !json.Valid(text) {
			t.Fatalf("%#v comes back as %#v from %s", message, decoded, text)
		}
		if again := encode(t, decoded); string(again) != string(text) {
			t.Fatalf("%s is encoded again as %s", text, again)
		}
	}
}

type random struct{ *rand.Rand }

func (r random) message() schema.Message {
	switch r.IntN(4) {
	case 0:
		return &schema.SystemMessage{Parts: list(r, r.part), Metadata: r.anyMap(4)}
	case 1:
		return &schema.HumanMessage{Parts: list(r, r.part), Metadata: r.anyMap(4)}
	case 2:
		return &schema.ToolMessage{ToolCallID: r.string(), Parts: list(r, r.part), Metadata: r.anyMap(4)}
	}
	return &schema.AIMessage{
		Parts: list(r, r.part),
		ToolCalls: list(r, func() schema.ToolCall {
			return schema.ToolCall{ID: r.string(), Name: r.string(), Arguments: r.string()}
		}),
		Usage: schema.Usage{InputTokens: r.int(), OutputTokens: r.int(), TotalTokens: r.int(), CachedTokens: r.int(),
			ReasoningTokens: r.int()},
		ModelID:  r.string(),
		Metadata: r.anyMap(4),
	}
}

func (r random) part() schema.ContentPart {
	switch r.IntN(6) {
	case 0:
		return schema.TextPart{Text: r.string()}
	case 1:
		return schema.ImagePart{Data: r.bytes(), MimeType: r.string(), URL: r.string()}
	case 2:
		return schema.AudioPart{Data: r.bytes(), Format: r.string(), SampleRate: r.int()}
	case 3:
		return schema.VideoPart{Data: r.bytes(), MimeType: r.string(), URL: r.string()}
	case 4:
		return schema.FilePart{Data: r.bytes(), Name: r.string(), MimeType: r.string()}
	}
	return schema.ThinkingPart{Text: r.string(), Signature: r.string()}
}

// list is nil, empty, or has a few elements.
func list[E any](r random, element func() E) []E {
	n := r.IntN(5) - 1
	if n < 0 {
		return nil
	}
	elements := make([]E, n)
	for i := range elements {
		elements[i] = element()
	}
	return elements
}

func (r random) bytes() []byte { return list(r, func() byte { return byte(r.Uint32()) }) }

// string is built of what is hard to write, or looks like something else.
func (r random) string() string {
	pieces := []string{"", "a", "text ", "$", "$int", "$map", `"`, `\`, "\n", "\t", "\x00", "\x1f", "\x7f", "\xff", "\xe2\x82", "é", "\ufffd",
		"\u2028", "😀", "<&>", "null", "{", "]", `{"$int":"1"}`, "\ufeff"}
	s := ""
	for range r.IntN(4) {
		s += pieces[r.IntN(len(pieces))]
	}
	return s
}

func (r random) int() int {
	return []int{0, 1, -1, r.IntN(1000), int(r.Uint64()), math.MaxInt, math.MinInt}[r.IntN(7)]
}

func (r random) anyMap(depth int) map[string]any {
	var m map[string]any
	for i := range r.IntN(5) {
		if i == 0 {
			m = map[string]any{}
			continue
		}
		m[r.string()] = r.value(depth - 1)
	}
	return m
}

func (r random) value(depth int) any {
	n := 23
	if depth > 0 {
		n += 4 // so that some nest
	}
	bits := r.Uint64() >> r.IntN(64)
	switch r.IntN(n) {
	case 0:
		return nil
	case 1:
		return bits&1 == 0
	case 2:
		return r.string()
	case 3:
		return int(bits)
	case 4:
		return int8(bits)
	case 5:
		return int16(bits)
	case 6:
		return int32(bits)
	case 7:
		return int64(bits)
	case 8:
		return uint(bits)
	case 9:
		return uint8(bits)
	case 10:
		return uint16(bits)
	case 11:
		return uint32(bits)
	case 12:
		return bits
	case 13:
		return math.Float32frombits(r.Uint32())
	case 14:
		return math.Float64frombits(r.Uint64())
	case 15:
		return float64(int32(bits)) / 100
	case 16:
		return time.Duration(bits)
	case 17:
		return time.Unix(r.Int64N(1<<32), r.Int64N(1e9)).In(time.FixedZone("zone", r.IntN(2*86399)-86399))
	case 18:
		return json.Number(strconv.FormatUint(bits, 10))
	case 19:
		return r.bytes()
	case 20:
		return list(r, r.string)
	case 21:
		m := map[string]string{}
		for range r.IntN(4) {
			m[r.string()] = r.string()
		}
		return m
	case 22:
		return []any{map[string]any(nil), []any(nil), map[string]string(nil)}[r.IntN(3)]
	case 23, 24:
		return list(r, func() any { return r.value(depth - 1) })
	}
	return r.anyMap(depth)
}
