package belugamemory_test

import (
	"math"
	"reflect"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// same is reflect.DeepEqual with two exceptions. Times are equal if instant and offset are. Floats
// are equal if their bits are, except those of a NaN.
func same(a, b schema.Message) bool {
	return reflect.DeepEqual(comparableMessage(a), comparableMessage(b))
}

func comparableMessage(message schema.Message) any {
	c := reflect.New(reflect.TypeOf(message).Elem()).Elem()
	c.Set(reflect.ValueOf(message).Elem())
	metadata, _ := comparableValue(message.GetMetadata()).(map[string]any)
	c.FieldByName("Metadata").Set(reflect.ValueOf(metadata))
	return c.Interface()
}

func comparableValue(v any) any {
	type instant struct {
		seconds             int64
		nanoseconds, offset int
	}
	type bits32 uint32
	type bits64 uint64
	switch v := v.(type) {
	case float32:
		if v != v {
			return bits32(0x7fc00000)
		}
		return bits32(math.Float32bits(v))
	case float64:
		if v != v {
			return bits64(0x7ff8000000000000)
		}
		return bits64(math.Float64bits(v))
	case time.Time:
		_, offset := v.Zone()
		return instant{v.Unix(), v.Nanosecond(), offset}
	case []any:
		if v == nil {
			return v
		}
		list := make([]any, len(v))
		for i, each := range v {
			list[i] = comparableValue(each)
		}
		return list
	case map[string]any:
		if v == nil {
			return v
		}
		m := make(map[string]any, len(v))
		for key, each := range v {
			m[key] = comparableValue(each)
		}
		return m
	}
	return v
}
