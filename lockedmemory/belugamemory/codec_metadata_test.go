package belugamemory_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// survivors are values of every type that the metadata keeps, by the type's name in the documentation.
var survivors = map[string][]any{
	"nil":    {nil},
	"bool":   {true, false},
	"string": {"", "text", "null", `"`, "\x00", "\xff", "\ufffd", "\u2028", `{"$int":"5"}`},
	"int":    {0, 1, math.MinInt, math.MaxInt},
	"int8":   {int8(0), int8(math.MinInt8), int8(math.MaxInt8)},
	"int16":  {int16(0), int16(math.MinInt16), int16(math.MaxInt16)},
	"int32":  {int32(0), int32(math.MinInt32), int32(math.MaxInt32), 'a'},
	"int64":  {int64(0), int64(math.MinInt64), int64(math.MaxInt64)},
	"uint":   {uint(0), uint(math.MaxUint)},
	"uint8":  {uint8(0), uint8(math.MaxUint8), byte('a')},
	"uint16": {uint16(0), uint16(math.MaxUint16)},
	"uint32": {uint32(0), uint32(math.MaxUint32)},
	"uint64": {uint64(0), uint64(math.MaxUint64)},
	"float32": {float32(0), float32(math.Copysign(0, -1)), float32(1) / 3, float32(math.MaxFloat32), float32(math.Inf(-1)),
		float32(math.NaN())},
	"float64": {0.0, math.Copysign(0, -1), 1.0 / 3, 1e20, 1e21, 1e-6, 1e-7, -1e100, math.MaxFloat64, math.SmallestNonzeroFloat64,
		float64(1<<53 + 2), math.Inf(1), math.Inf(-1), math.NaN()},
	"[]byte":   {[]byte(nil), []byte{}, []byte{0, 255}},
	"[]string": {[]string(nil), []string{}, []string{"", "a", "\xff"}},
	"[]any":    {[]any(nil), []any{}, []any{nil, 1, []any{[]byte(nil)}}},
	"map[string]string": {map[string]string(nil), map[string]string{}, map[string]string{"": "", "a": "\xff"},
		map[string]string{"$a": "b", "c": "d"}, map[string]string{"\xff": "a"}},
	"map[string]any": {map[string]any(nil), map[string]any{}, map[string]any{"": nil, "a": map[string]any{"b": 1}},
		map[string]any{"$int": "5"}, map[string]any{"$map": []any{[]any{"a", 1.0}}}, map[string]any{"$map": nil}, map[string]any{"$": 1},
		map[string]any{"$base64": "//4="}, map[string]any{"$a": 1, "!": 2, "\xff": 3}},
	"time.Time": {time.Time{}, time.Date(2026, 4, 1, 12, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 1, 0, 0, 0, 0, time.FixedZone("CET", 3600)), time.Now(),
		zone(-52), zone(52), zone(-75), zone(-86399), zone(86399), zone(-3600), zone(5*3600 + 45*60)},
	"time.Duration": {time.Duration(0), time.Nanosecond, 1234567 * time.Nanosecond, -time.Hour, time.Duration(math.MinInt64),
		time.Duration(math.MaxInt64)},
	"json.Number": {json.Number(""), json.Number("1.0"), json.Number("12345678901234567890"), json.Number("no number")},
}

func zone(offset int) time.Time {
	return time.Date(2026, 4, 1, 12, 0, 0, 0, time.FixedZone("", offset))
}

func TestCodec_keepsTheMetadataItPromises(t *testing.T) {
	for name, values := range survivors {
		for _, v := range values {
			if got := nameOf(v); got != name {
				t.Errorf("a %s stands under %s", got, name)
			}
			message := &schema.HumanMessage{Metadata: map[string]any{"key": v, "list": []any{v}, "map": map[string]any{"$key": v}}}
			text := encode(t, message)
			if decoded := decode(t, text); !same(decoded, message) || !json.Valid(text) {
				t.Errorf("%#v comes back as %#v from %s", v, decoded.GetMetadata()["key"], text)
			}
		}
	}
}

func TestCodec_promisesWhatItKeeps(t *testing.T) {
	var want []string
	for name := range survivors {
		want = append(want, name)
	}
	slices.Sort(want)

	file, err := parser.ParseFile(token.NewFileSet(), "codec.go", nil, parser.ParseComments)
	must(t, err)
	var documented []string
	for _, decl := range file.Decls {
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.TYPE {
			for line := range strings.Lines(gen.Doc.Text()) {
				if list, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
					documented = append(documented, strings.Split(list, ", ")...)
				}
			}
		}
	}
	slices.Sort(documented)
	if !slices.Equal(documented, want) {
		t.Errorf("Codec's documentation lists\n%s\nand the tests try\n%s", documented, want)
	}

	_, err = codec.Encode(&schema.HumanMessage{Metadata: map[string]any{"a": struct{}{}}})
	_, list, _ := strings.Cut(err.Error(), "what does: ")
	list, _, _ = strings.Cut(list, ". ")
	named := strings.Split(list, ", ")
	slices.Sort(named)
	if !slices.Equal(named, want) {
		t.Errorf("the error lists\n%s\nand the tests try\n%s", named, want)
	}
}

// nameOf is the Go type of v as one writes it.
func nameOf(v any) string {
	if v == nil {
		return "nil"
	}
	return strings.NewReplacer("[]uint8", "[]byte", "interface {}", "any").Replace(fmt.Sprintf("%T", v))
}

func TestCodec_refusesOtherMetadata(t *testing.T) {
	type text string
	type order struct{ Name string }
	secret := "secret"
	for _, v := range []any{
		text(secret), order{secret}, &order{secret}, &secret, []order{{secret}}, map[string]order{secret: {secret}}, []int{1}, []float64{1},
		[]map[string]any{{"a": secret}}, map[string]int{"a": 1}, map[any]any{"a": secret}, [1]string{secret}, complex(1, 1), uintptr(1),
		func() {}, make(chan int), errors.New(secret), json.RawMessage(`"secret"`), time.April, schema.RoleAI, (*order)(nil),
	} {
		for path, metadata := range map[string]map[string]any{
			`metadata["key"]`:                {"key": v},
			`metadata["a"]["$b"][1]["\xff"]`: {"a": map[string]any{"$b": []any{secret, map[string]any{"\xff": v}}}},
		} {
			text, err := codec.Encode(&schema.AIMessage{Metadata: metadata})
			if err == nil {
				t.Errorf("a %T is encoded: %s", v, text)
				continue
			}
			for _, part := range []string{path + " is a ", fmt.Sprintf("%T", v), "Convert it to one of these, or marshal it to a string"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q tells the value", err)
			}
		}
	}
}

func TestCodec_refusesTimesThatHaveNoText(t *testing.T) {
	for _, v := range []time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), zone(86400),
		zone(-86400)} {
		if text, err := codec.Encode(&schema.AIMessage{Metadata: map[string]any{"when": v}}); err == nil ||
			!strings.Contains(err.Error(), `metadata["when"] is a time.Time whose`) {
			t.Errorf("%v: %s, %v", v, text, err)
		}
	}
}

// What an instance reads must not depend on where it runs.
func TestCodec_givesNoTimeTheMachinesZone(t *testing.T) {
	// In a process of its own: whatever runs in the background here may look at the clock, and so at time.Local.
	const alone = "BELUGAMEMORY_TEST_ALONE"
	if os.Getenv(alone) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		child.Env = append(os.Environ(), alone+"=1", "GORACE=atexit_sleep_ms=0")
		if output, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
		return
	}
	time.Local = time.FixedZone("here", 7200)
	message := &schema.HumanMessage{Metadata: map[string]any{"when": time.Date(2026, 4, 1, 12, 0, 0, 0, time.Local)}}
	when := decode(t, encode(t, message)).GetMetadata()["when"].(time.Time)
	if name, offset := when.Zone(); when.Location() == time.Local || name != "" || offset != 7200 {
		t.Errorf("the zone is %s with %d s", when.Location(), offset)
	}
}

func TestCodec_boundsTheDepth(t *testing.T) {
	nested := func(depth int, list bool) *schema.HumanMessage {
		metadata := map[string]any{}
		for range depth - 1 {
			if list {
				metadata = map[string]any{"a": []any{metadata}}
				continue
			}
			metadata = map[string]any{"a": metadata}
		}
		return &schema.HumanMessage{Metadata: metadata}
	}
	if message := nested(100, false); !same(decode(t, encode(t, message)), message) {
		t.Error("100 maps do not come back")
	}
	wide := &schema.HumanMessage{Metadata: map[string]any{"list": []any{}, "map": map[string]any{"$": nil}}}
	for i := range 200 {
		wide.Metadata[fmt.Sprint(i)] = []any{[]any{}, map[string]any{}}
	}
	if !same(decode(t, encode(t, wide)), wide) {
		t.Error("many lists and maps beside each other do not come back")
	}
	map1, list := map[string]any{}, []any{nil}
	map1["itself"], list[0] = map1, list
	for _, metadata := range []map[string]any{nested(101, false).Metadata, nested(51, true).Metadata, map1, {"list": list}} {
		text, err := codec.Encode(&schema.HumanMessage{Metadata: metadata})
		if err == nil || !strings.Contains(err.Error(), "more than 100 levels deep, or contains itself") || len(err.Error()) > 300 {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, deep := range []string{strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101), `{"a":` + strings.Repeat("[", 1<<20),
		strings.Repeat(`{"$map":[["$a",`, 1<<16)} {
		if _, err := codec.Decode([]byte(`{"v":1,"role":"human","metadata":` + deep + "}")); err == nil ||
			!strings.Contains(err.Error(), "more than 100 levels deep") {
			t.Error(err)
		}
	}
}
