package belugamemory_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

func zone(offset int) time.Time {
	return time.Date(2026, 4, 1, 12, 0, 0, 0, time.FixedZone("", offset))
}

// The golden texts and the random messages have values of each documented type.
func TestCodec_documentsItsTypes(t *testing.T) {
	source, err := os.ReadFile("codec.go")
	must(t, err)
	_, list, _ := strings.Cut(string(source), "keep type and value, also in each other:\n//\n")
	list, _, _ = strings.Cut(list, "//\n")
	documented := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune("/-, \n", r) })
	want := map[string]bool{}
	for key, v := range golden()["ai"].GetMetadata() {
		if key != "plan" { // comes back as JSON
			want[nameOf(v)] = true
		}
	}
	if want := slices.Sorted(maps.Keys(want)); !slices.Equal(slices.Sorted(slices.Values(documented)), want) {
		t.Errorf("Codec's documentation lists\n%s\nand the tests try\n%s", documented, want)
	}
}

// nameOf returns the Go type of v as in source code.
func nameOf(v any) string {
	if v == nil {
		return "nil"
	}
	return strings.NewReplacer("[]uint8", "[]byte", "interface {}", "any").Replace(fmt.Sprintf("%T", v))
}

type (
	node      struct{ Next *node }
	marshaler func() ([]byte, error)
)

func (m marshaler) MarshalJSON() ([]byte, error) { return m() }

type marshalsText struct{ Itself *marshalsText }

func (marshalsText) MarshalText() ([]byte, error) { return []byte("text"), nil }

func chain(length int) (head *node) {
	for range length {
		head = &node{head}
	}
	return head
}

func TestCodec_otherTypes_comeBackAsJSON(t *testing.T) {
	var text marshalsText
	text.Itself = &text
	parent := struct {
		Name  string
		Child any `json:"-"`
	}{Name: "a"}
	parent.Child = &parent
	for _, c := range []struct{ stored, want any }{
		{[]int{1, 2}, []any{json.Number("1"), json.Number("2")}},
		{[]int64{1, 9007199254740993}, []any{json.Number("1"), json.Number("9007199254740993")}},
		{struct{ ID uint64 }{math.MaxUint64}, map[string]any{"ID": json.Number("18446744073709551615")}},
		{json.RawMessage("[1.50,1e999]"), []any{json.Number("1.50"), json.Number("1e999")}},
		{[]schema.Role{`\ufffd`, "\ufffd"}, []any{`\ufffd`, "\ufffd"}},
		{[]int(nil), nil},
		{map[string]int{"$int": 1}, map[string]any{"$int": json.Number("1")}},
		{[]map[string]any{{"a": 1, "$b": "c"}}, []any{map[string]any{"a": json.Number("1"), "$b": "c"}}},
		{struct {
			At time.Time
			in int
		}{At: zone(3600)}, map[string]any{"At": "2026-04-01T12:00:00+01:00"}},
		{json.RawMessage(`{"$int":"5","n":12345678}`), map[string]any{"$int": "5", "n": json.Number("12345678")}},
		{schema.RoleAI, "ai"},
		{[]schema.ToolCall{{ID: "c"}}, []any{map[string]any{"ID": "c", "Name": "", "Arguments": ""}}},
		{(*node)(nil), nil},
		{&parent, map[string]any{"Name": "a"}},
		{&text, "text"},
		{chain(2), map[string]any{"Next": map[string]any{"Next": nil}}},
		{marshaler(func() ([]byte, error) { return []byte("[true]"), nil }), []any{true}},
	} {
		message := &schema.AIMessage{Metadata: map[string]any{"key": c.stored, "list": []any{c.stored}}}
		text, err := codec.Encode(message)
		if err != nil {
			t.Errorf("a %T is refused: %v", c.stored, err)
			continue
		}
		want := map[string]any{"key": c.want, "list": []any{c.want}}
		if got := decode(t, text).GetMetadata(); !reflect.DeepEqual(got, want) {
			t.Errorf("a %T comes back as %#v from %s", c.stored, got, text)
		}
	}
}

func TestCodec_refusesMetadataBeyondJSON(t *testing.T) {
	const secret = "secret"
	cycle := &node{}
	cycle.Next = cycle
	for _, v := range []any{
		func() {}, make(chan int), map[string]chan int{secret: nil}, complex(1, 1),
		struct{ X any }{math.NaN()}, []float64{math.Inf(1)}, json.RawMessage(secret), json.RawMessage("\"\xff\""),
		json.RawMessage(`"\ud83d"`), json.RawMessage(`{"\ud83d":0,"\ude00":0}`), json.RawMessage(`["\uDE00\uD83D"]`),
		schema.Role("a\xffb"), schema.ToolCall{Arguments: `\` + "\xff"}, map[string]int{"\xff": 1, "\xfe": 2},
		struct{ N json.Number }{secret}, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		marshaler(func() ([]byte, error) { return nil, errors.New(secret) }),
		marshaler(func() ([]byte, error) { return []byte(secret), nil }),
		marshaler(func() ([]byte, error) { panic(secret) }),
		marshaler(func() ([]byte, error) { return []byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000)), nil }),
		cycle, chain(101), chain(20000),
	} {
		refuses(t, &schema.AIMessage{Metadata: map[string]any{"a": map[string]any{"$b": []any{secret, map[string]any{"\xff": v}}}}},
			fmt.Sprintf(`metadata "a" "$b" 1 "\xff" is a %T that encoding/json cannot store`, v))
	}
}

func TestCodec_boundsTheDepth(t *testing.T) {
	nested := func(depth int) *schema.HumanMessage {
		metadata := map[string]any{"a": 1}
		for range depth - 1 {
			metadata = map[string]any{"a": metadata}
		}
		return &schema.HumanMessage{Metadata: metadata}
	}
	if message := nested(100); !same(decode(t, encode(t, message)), message) {
		t.Error("100 maps do not come back")
	}
	itself, list := map[string]any{}, []any{nil}
	itself["itself"], list[0] = itself, list
	for _, metadata := range []map[string]any{nested(101).Metadata, nested(1 << 20).Metadata, itself, {"list": list}} {
		refuses(t, &schema.HumanMessage{Metadata: metadata}, "more than 100 levels deep, or contains itself")
	}
	for _, deep := range []string{`{"a":`, `[`, `{"$[]string":[`} {
		if _, err := codec.Decode([]byte(`{"v":1,"role":"human","metadata":` + strings.Repeat(deep, 1<<20))); err == nil {
			t.Errorf("a million %s are accepted", deep)
		}
	}
}
