package belugamemory

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxDepth is how deep lists and maps may nest in metadata, the metadata itself being the first.
const maxDepth = 100

// metadataTypes is for the error; Codec's documentation has the same list.
const metadataTypes = "nil, bool, string, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64, " +
	"[]byte, []string, []any, map[string]string, map[string]any, time.Time, time.Duration, json.Number"

// Metadata is JSON: nil, bool, string, a finite float64, []any and map[string]any are what they look like. Everything else is an
// object with one key, which begins with $ and names the Go type; JSON's null inside it is a nil list or map. A user's map in which
// a key begins with $, or is not UTF-8, is not written as an object but as a list of pairs: {"$map":[["$key","value"]]}.
//
// Numbers with a tag are strings, since JSON readers may round numbers beyond 2^53 (RFC 8259, section 6).

// misfit is a value in metadata that cannot be kept, and the way to it from the inside out.
type misfit struct {
	path []string
	why  string
}

func (m *misfit) in(step string) *misfit {
	m.path = append(m.path, step)
	return m
}

func (m *misfit) String() string {
	const shown = 8
	slices.Reverse(m.path)
	rest := ""
	if len(m.path) > shown {
		m.path, rest = m.path[:shown], "…"
	}
	return "metadata" + strings.Join(m.path, "") + rest + " " + m.why
}

func (w *writer) metadata(name string, metadata *map[string]any) {
	if *metadata == nil {
		return
	}
	w.field(name)
	if bad := w.anyMap(*metadata); bad != nil {
		w.refuse("%v", bad)
	}
}

func (w *writer) value(v any) *misfit {
	switch v := v.(type) {
	case nil:
		w.append("null")
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	case string:
		w.string(v)
	case int:
		w.integer("int", int64(v))
	case int8:
		w.integer("int8", int64(v))
	case int16:
		w.integer("int16", int64(v))
	case int32:
		w.integer("int32", int64(v))
	case int64:
		w.integer("int64", v)
	case uint:
		w.unsigned("uint", uint64(v))
	case uint8:
		w.unsigned("uint8", uint64(v))
	case uint16:
		w.unsigned("uint16", uint64(v))
	case uint32:
		w.unsigned("uint32", uint64(v))
	case uint64:
		w.unsigned("uint64", v)
	case float32:
		w.tagged("float32", strconv.FormatFloat(float64(v), 'g', -1, 32))
	case float64:
		w.float64(v)
	case json.Number:
		w.tagged("number", string(v))
	case time.Duration:
		w.tagged("duration", v.String())
	case time.Time:
		return w.time(v)
	case []byte:
		w.nilable("bytes", v == nil, func() { w.base64(v) })
	case []string:
		w.nilable("strings", v == nil, func() { w.stringList(v) })
	case map[string]string:
		w.nilable("string_map", v == nil, func() { w.stringMap(v) })
	case []any:
		return w.anyList(v)
	case map[string]any:
		return w.anyMap(v)
	default:
		return &misfit{why: fmt.Sprintf("is a %T, which would not come back as one; what does: %s. Convert it to one of these, or marshal "+
			"it to a string", v, metadataTypes)}
	}
	return nil
}

func (w *writer) integer(tag string, n int64)   { w.tagged(tag, strconv.FormatInt(n, 10)) }
func (w *writer) unsigned(tag string, n uint64) { w.tagged(tag, strconv.FormatUint(n, 10)) }

func (w *writer) tagged(tag, s string) {
	w.open(tag)
	w.string(s)
	w.append("}")
}

func (w *writer) nilable(tag string, isNil bool, write func()) {
	w.open(tag)
	if isNil {
		w.append("null")
	} else {
		write()
	}
	w.append("}")
}

func (w *writer) open(tag string) {
	w.append(`{"$`)
	w.append(tag)
	w.append(`":`)
}

func (w *writer) float64(f float64) {
	switch abs := math.Abs(f); {
	case math.IsInf(f, 0) || math.IsNaN(f):
		w.tagged("float64", strconv.FormatFloat(f, 'g', -1, 64))
	case abs != 0 && (abs < 1e-6 || abs >= 1e21): // as ECMAScript does
		w.out = strconv.AppendFloat(w.out, f, 'e', -1, 64)
	default:
		w.out = strconv.AppendFloat(w.out, f, 'f', -1, 64)
	}
}

// A zone of local mean time has an offset with seconds, for which RFC 3339 has no form: without them, the instant would be another.
const (
	localTime         = "2006-01-02T15:04:05.999999999"
	offsetWithSeconds = localTime + "Z07:00:00"
)

func (w *writer) time(t time.Time) *misfit {
	const day = 24 * 60 * 60
	_, offset := t.Zone()
	if t.Year() < 0 || t.Year() > 9999 || offset <= -day || offset >= day {
		return &misfit{why: "is a time.Time whose year is not 0 to 9999, or whose offset is a day or more; marshal it to a string"}
	}
	if offset%60 == 0 {
		w.tagged("time", t.Format(time.RFC3339Nano))
		return nil
	}
	sign := '+'
	if offset < 0 { // Format takes the sign from the minutes, which may be none
		sign, offset = '-', -offset
	}
	w.tagged("time", fmt.Sprintf("%s%c%02d:%02d:%02d", t.Format(localTime), sign, offset/3600, offset/60%60, offset%60))
	return nil
}

func (w *writer) stringList(list []string) {
	w.append("[")
	for _, s := range list {
		w.comma()
		w.string(s)
	}
	w.append("]")
}

func (w *writer) stringMap(m map[string]string) {
	w.entries(plain(m), slices.Sorted(maps.Keys(m)), func(key string) *misfit {
		w.string(m[key])
		return nil
	})
}

func (w *writer) anyList(list []any) *misfit {
	if list == nil {
		w.append(`{"$list":null}`)
		return nil
	}
	if bad := w.nest(); bad != nil {
		return bad
	}
	w.append("[")
	for i, v := range list {
		w.comma()
		if bad := w.value(v); bad != nil {
			return bad.in(fmt.Sprintf("[%d]", i))
		}
	}
	w.append("]")
	w.depth--
	return nil
}

func (w *writer) anyMap(m map[string]any) *misfit {
	if m == nil {
		w.append(`{"$map":null}`)
		return nil
	}
	if bad := w.nest(); bad != nil {
		return bad
	}
	asObject := plain(m)
	if !asObject {
		w.open("map")
	}
	bad := w.entries(asObject, slices.Sorted(maps.Keys(m)), func(key string) *misfit { return w.value(m[key]) })
	if !asObject {
		w.append("}")
	}
	w.depth--
	return bad
}

// nest keeps a map that contains itself from overflowing the stack.
func (w *writer) nest() *misfit {
	if w.depth == maxDepth {
		return &misfit{why: fmt.Sprintf("nests more than %d levels deep, or contains itself", maxDepth)}
	}
	w.depth++
	return nil
}

// plain reports whether m can be an object: whether no key could be taken for a tag, or has no form in JSON.
func plain[V any](m map[string]V) bool {
	for key := range m {
		if strings.HasPrefix(key, "$") || !utf8.ValidString(key) {
			return false
		}
	}
	return true
}

// entries writes a map as an object, or as a list of pairs.
func (w *writer) entries(asObject bool, keys []string, value func(key string) *misfit) *misfit {
	opening, between, closing := "[", ",", "]"
	if asObject {
		opening, between, closing = "{", ":", "}"
	}
	w.append(opening)
	for _, key := range keys {
		w.comma()
		if !asObject {
			w.append("[")
		}
		w.string(key)
		w.append(between)
		if bad := value(key); bad != nil {
			return bad.in(fmt.Sprintf("[%q]", key))
		}
		if !asObject {
			w.append("]")
		}
	}
	w.append(closing)
	return nil
}
