// Package packed writes values of Go as JSON, and reads them with the same types.
package packed

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Metadata is stored as JSON. Values that JSON lacks are tagged with their Go type: {"$int":"5"}.
// Tagged numbers are strings, because JSON readers can round numbers beyond 2^53 (RFC 8259,
// section 6). A key that begins with $ or is not UTF-8 is stored as $ and the key as a Go string.

// MaxDepth is how deep lists and maps may nest.
const MaxDepth = 100
const localTime = "2006-01-02T15:04:05.999999999"

var tags = make(map[string]reflect.Type)

func init() {
	for _, v := range []any{"", 0, int8(0), int16(0), int32(0), int64(0), uint(0), uint8(0), uint16(0),
		uint32(0), uint64(0), float32(0), 0.0, json.Number(""), time.Time{}, time.Duration(0), []byte{},
		[]string{}, []any{}, map[string]string{}, map[string]any{}} {
		tags[fmt.Sprintf("$%T", v)] = reflect.TypeOf(v)
	}
}

func tag(v, stored any) any { return map[string]any{fmt.Sprintf("$%T", v): stored} }

// Value returns v as values that encoding/json writes without a loss.
func Value(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool:
		return v, nil
	case string:
		if utf8.ValidString(v) {
			return v, nil
		}
		return tag(v, strconv.QuoteToASCII(v)), nil
	case json.Number:
		text, err := Value(string(v))
		return tag(v, text), err
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, nil
		}
		return tag(v, fmt.Sprint(v)), nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, time.Duration:
		return tag(v, fmt.Sprint(v)), nil
	case []byte:
		return tag(v, v), nil
	case time.Time:
		if text, err := Time(v); err == nil {
			return tag(v, text), nil
		}
	case []string:
		list, err := Each(v, func(s string) (any, error) { return Value(s) })
		return tag(v, list), err
	case map[string]string:
		m, err := Map(v)
		return tag(v, m), err
	case []any:
		if v == nil {
			return tag(v, nil), nil
		}
		return Each(v, Value)
	case map[string]any:
		if v == nil {
			return tag(v, nil), nil
		}
		return Map(v)
	}
	plain, ok := plainJSON(v)
	if !ok || Deep(plain, MaxDepth) {
		return nil, fmt.Errorf("is a %T that encoding/json cannot store (a channel, function, cycle, NaN, text that is "+
			"no UTF-8, failing MarshalJSON, more than %d levels): remove it, or store it as a string", v, MaxDepth)
	}
	return Value(plain)
}

// Map is Value for a map.
func Map[V any](m map[string]V) (stored map[string]any, err error) {
	if m != nil {
		stored = make(map[string]any, len(m))
	}
	for key, v := range m {
		name := key
		if strings.HasPrefix(key, "$") || !utf8.ValidString(key) {
			name = "$" + strconv.QuoteToASCII(key)
		}
		if stored[name], err = Value(v); err != nil {
			return nil, fmt.Errorf("%q %w", key, err)
		}
	}
	return stored, nil
}

// plainJSON returns v after a round trip through encoding/json that changes no text. Its numbers are
// json.Numbers, which keep their digits.
func plainJSON(v any) (plain any, ok bool) {
	defer func() { _ = recover() }() // of a MarshalJSON
	text, err := json.Marshal(v)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	ok = err == nil && utf8.Valid(text) && decoder.Decode(&plain) == nil
	// encoding/json replaces bytes that are not UTF-8, and half a surrogate pair, by U+FFFD.
	again, _ := json.Marshal(plain)
	changed := bytes.Count(again, []byte("\ufffd")) > bytes.Count(text, []byte("\ufffd"))
	return plain, ok && !changed
}

// Is reports whether Value returns stored for v. Otherwise the stored value is damaged.
func Is(stored, v any) bool {
	packed, _ := Value(v)
	want, _ := json.Marshal(packed)
	got, _ := json.Marshal(stored)
	return bytes.Equal(got, want)
}

// Unpack is the inverse of Value. Damaged text becomes some value of its type, and Is finds it.
func Unpack(v any) any {
	switch v := v.(type) {
	case []any:
		list, _ := Each(v, func(packed any) (any, error) { return Unpack(packed), nil })
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, packed := range v {
			if t := tags[key]; t != nil && len(v) == 1 {
				return untag(t, Unpack(packed))
			}
			if quoted, special := strings.CutPrefix(key, "$"); special {
				key, _ = strconv.Unquote(quoted)
			}
			m[key] = Unpack(packed)
		}
		return m
	}
	return v
}

// untag returns the value of a tag.
func untag(t reflect.Type, stored any) any {
	text, _ := stored.(string)
	value := reflect.New(t)
	switch to := value.Interface().(type) {
	case *string:
		*to, _ = strconv.Unquote(text)
	case *json.Number:
		*to = json.Number(text)
	case *[]byte:
		written, _ := json.Marshal(stored)
		_ = json.Unmarshal(written, to)
	case *[]string:
		list, _ := stored.([]any)
		*to, _ = Each(list, func(v any) (string, error) { s, _ := v.(string); return s, nil })
	case *map[string]string:
		if m, isMap := stored.(map[string]any); isMap {
			*to = make(map[string]string, len(m))
			for key, v := range m {
				(*to)[key], _ = v.(string)
			}
		}
	case *time.Duration:
		*to, _ = time.ParseDuration(text)
	case *time.Time:
		*to, _ = ParseTime(text)
	default: // a number, or a nil []any or map[string]any
		_, _ = fmt.Sscan(text, to)
	}
	return value.Elem().Interface()
}

// Time returns a time as text, with its offset in seconds, which RFC 3339 lacks.
func Time(t time.Time) (string, error) {
	if t.Year() < 0 || t.Year() > 9999 {
		return "", fmt.Errorf("its time has the year %d, but must be from 0 to 9999", t.Year())
	}
	_, offset := t.Zone()
	return t.Format(localTime) + " " + strconv.Itoa(offset), nil
}

// ParseTime is the inverse of Time. If the offset is 0, the time is in UTC.
func ParseTime(text string) (time.Time, error) {
	local, seconds, _ := strings.Cut(text, " ")
	offset, err := strconv.Atoi(seconds)
	zone := time.UTC
	if offset != 0 {
		zone = time.FixedZone("", offset)
	}
	t, failed := time.ParseInLocation(localTime, local, zone)
	return t, cmp.Or(err, failed)
}

// Deep reports whether the lists and maps in v nest deeper than depth.
func Deep(v any, depth int) bool {
	var inside []any
	switch v := v.(type) {
	case []any:
		inside = v
	case map[string]any:
		inside = slices.Collect(maps.Values(v))
	}
	return depth < 0 || slices.ContainsFunc(inside, func(v any) bool { return Deep(v, depth-1) })
}

// Each converts a list. A nil list stays nil, and an error begins with the index.
func Each[A, B any](list []A, each func(A) (B, error)) (converted []B, err error) {
	if list != nil {
		converted = make([]B, len(list))
	}
	for i, a := range list {
		if converted[i], err = each(a); err != nil {
			return nil, fmt.Errorf("%d %w", i, err)
		}
	}
	return converted, nil
}
