package belugamemory

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

func (r *reader) metadata(name string, metadata *map[string]any) {
	if !r.field(name) {
		return
	}
	var isMap bool
	if *metadata, isMap = r.value().(map[string]any); !isMap {
		r.fail("no map before")
	}
}

func (r *reader) value() any {
	switch c := r.next(); {
	case c == '"':
		return r.quoted()
	case c == '{':
		if r.follows(`{"$`) {
			return r.tagged()
		}
		m := make(map[string]any)
		r.nested(func() { entries(r, m, r.value) })
		return m
	case c == '[':
		list := []any{}
		r.nested(func() {
			for r.want("["); r.more(']'); {
				list = append(list, r.value())
			}
		})
		return list
	case r.skip("null"):
		return nil
	case r.skip("true"):
		return true
	case r.skip("false"):
		return false
	}
	f, err := strconv.ParseFloat(r.numeral(), 64)
	if err != nil {
		r.fail("no value here, or a number before that no float64 holds")
	}
	return f
}

func (r *reader) tagged() any {
	r.want(`{"$`)
	length := max(bytes.IndexByte(r.in[r.at:], '"'), 0)
	tag := string(r.in[r.at : r.at+length])
	r.at += length
	r.want(`":`)
	v := r.untagged(tag)
	r.want("}")
	return v
}

func (r *reader) untagged(tag string) any {
	switch tag {
	case "base64":
		return string(r.base64())
	case "int":
		return int(r.integer(strconv.IntSize))
	case "int8":
		return int8(r.integer(8))
	case "int16":
		return int16(r.integer(16))
	case "int32":
		return int32(r.integer(32))
	case "int64":
		return r.integer(64)
	case "uint":
		return uint(r.unsigned(strconv.IntSize))
	case "uint8":
		return uint8(r.unsigned(8))
	case "uint16":
		return uint16(r.unsigned(16))
	case "uint32":
		return uint32(r.unsigned(32))
	case "uint64":
		return r.unsigned(64)
	case "float32":
		return float32(r.float(32))
	case "float64":
		return r.float(64)
	case "number":
		return json.Number(r.string())
	case "duration":
		d, err := time.ParseDuration(r.string())
		if err != nil {
			r.fail("no duration before")
		}
		return d
	case "time":
		return r.time()
	case "bytes":
		if r.skip("null") {
			return []byte(nil)
		}
		return r.base64()
	case "strings":
		return r.stringList()
	case "string_map":
		return r.stringMap()
	case "list":
		r.want("null")
		return []any(nil)
	case "map":
		return r.anyMap()
	}
	r.fail("the tag before is unknown")
	return nil
}

func (r *reader) integer(bits int) int64 {
	n, err := strconv.ParseInt(r.string(), 10, bits)
	if err != nil {
		r.fail("no integer before, or one that its type does not hold on this machine")
	}
	return n
}

func (r *reader) unsigned(bits int) uint64 {
	n, err := strconv.ParseUint(r.string(), 10, bits)
	if err != nil {
		r.fail("no unsigned integer before, or one that its type does not hold on this machine")
	}
	return n
}

func (r *reader) float(bits int) float64 {
	f, err := strconv.ParseFloat(r.string(), bits)
	if err != nil {
		r.fail("no number before")
	}
	return f
}

func (r *reader) time() time.Time {
	s := r.string()
	for _, layout := range []string{time.RFC3339Nano, offsetWithSeconds} {
		// With the machine's own zone, time.Parse would give it to the times that have its offset.
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return t
		}
	}
	r.fail("no time before")
	return time.Time{}
}

func (r *reader) stringList() []string {
	if r.skip("null") {
		return nil
	}
	list := []string{}
	for r.want("["); r.more(']'); {
		list = append(list, r.string())
	}
	return list
}

func (r *reader) stringMap() map[string]string {
	if r.skip("null") {
		return nil
	}
	m := make(map[string]string)
	entries(r, m, r.string)
	return m
}

func (r *reader) anyMap() map[string]any {
	if r.skip("null") {
		return nil
	}
	m := make(map[string]any)
	r.nested(func() { entries(r, m, r.value) })
	return m
}

// nested keeps a hostile text from overflowing the stack.
func (r *reader) nested(read func()) {
	if r.depth == maxDepth {
		r.fail("nests more than %d levels deep", maxDepth)
		return
	}
	r.depth++
	read()
	r.depth--
}

// entries reads a map that stands there as an object, or as a list of pairs.
func entries[V any](r *reader, m map[string]V, value func() V) {
	if r.skip("{") {
		for r.more('}') {
			key := r.quoted()
			r.want(":")
			m[key] = value()
		}
		return
	}
	for r.want("["); r.more(']'); {
		r.want("[")
		key := r.string()
		r.want(",")
		m[key] = value()
		r.want("]")
	}
}

func (r *reader) skip(token string) bool {
	if !r.follows(token) {
		return false
	}
	r.at += len(token)
	return true
}
