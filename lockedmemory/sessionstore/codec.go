package sessionstore

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Codec turns messages of type M into bytes and back, and into search results of type D. It is safe
// for concurrent use. Entries outlive versions of the program: a Codec must read the bytes of its
// predecessors. [JSON] is a Codec for plain structs.
type Codec[M, D any] interface {
	// Encode must return the same bytes for the same message each time, in every process and version.
	// By these bytes, the store sees whether a repeated SaveOnce has the same messages. A map
	// in random order, or the time of the encoding, makes each retry an [ErrTurnConflict].
	Encode(message M) ([]byte, error)
	// Decode returns the message that Encode was given. It must fail for bytes that Encode cannot have
	// returned, because the store takes all others for a message.
	Decode(text []byte) (M, error)
	// Text returns the text in which queries search.
	Text(message M) string
	// Document returns the message as a search result.
	Document(message M) D
}

// JSON is a Codec for plain structs, by encoding/json. Numbers in fields of type any come back as float64.
// A Store refuses a JSON, or a codec that embeds one, if it stores nothing of a struct because no field is
// exported.
type JSON[M any] struct {
	// TextOf returns the text in which queries search. Nil: the string itself, or the strings in the
	// fields, elements and map values of a message, one a line. Names and keys are no text.
	TextOf func(M) string
}

// Encode implements [Codec]. It refuses null, texts that are not valid UTF-8, and half a surrogate pair,
// such as \ud83d alone. No error shows anything of the message.
func (JSON[M]) Encode(message M) ([]byte, error) {
	text, err := json.Marshal(message)
	switch {
	case err != nil:
		return nil, err
	case isReplaced[M](text):
		return nil, errUTF8
	}
	return text, refusal(text)
}

// Decode implements [Codec]. It refuses what Encode refuses.
func (JSON[M]) Decode(text []byte) (message M, err error) {
	if err = json.Unmarshal(text, &message); err != nil {
		return message, decodeError(err)
	}
	return message, refusal(text)
}

var (
	errUTF8 = errors.New("a text of the message is not valid UTF-8: " +
		"keep other bytes in a []byte, which JSON writes as base64")
	errHalf = errors.New("the JSON of the message has half a surrogate pair, such as \\ud83d alone, which " +
		"other readers refuse: write whole characters")
	errNull = errors.New("the message is null: store a value")
)

// refusal is the error about JSON that encoding/json accepts, but that is no message.
func refusal(text []byte) error {
	switch {
	case !utf8.Valid(text):
		return errUTF8
	case hasHalfPair(text):
		return errHalf
	case string(bytes.TrimSpace(text)) == "null":
		return errNull
	}
	return nil
}

// hasHalfPair reports whether JSON has the escape of half a surrogate pair, see RFC 8259, section 8.2.
func hasHalfPair(text []byte) bool {
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return false
		}
		text = text[at:]
		r := escaped(text)
		switch {
		case r < 0: // another escape
			text = text[2:]
			continue
		case utf16.IsSurrogate(r):
			text = text[6:]
			if utf16.DecodeRune(r, escaped(text)) == utf8.RuneError {
				return true
			}
		}
		text = text[6:]
	}
}

// escaped returns the code unit of the escape \uXXXX that valid JSON begins with, or -1.
func escaped(text []byte) rune {
	if !bytes.HasPrefix(text, []byte(`\u`)) {
		return -1
	}
	unit, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(unit)
}

// isReplaced reports whether encoding/json has replaced invalid UTF-8 by the escape of U+FFFD. Decoded
// and encoded again, that escape becomes a character. An escape of the message itself stays.
func isReplaced[M any](text []byte) bool {
	escape := []byte(`\ufffd`)
	n := bytes.Count(text, escape)
	if n == 0 {
		return false
	}
	var message M
	_ = json.Unmarshal(text, &message) // after an error, missing escapes count as replaced
	encoded, _ := json.Marshal(message)
	return bytes.Count(encoded, escape) < n
}

func (JSON[M]) writesExportedFields() {}

// storesNothing reports whether a codec is or embeds a JSON, and writes nothing of structs because
// none of their fields is exported.
func storesNothing[M, D any](codec Codec[M, D]) bool {
	t := reflect.TypeFor[M]()
	_, plain := codec.(interface{ writesExportedFields() })
	if !plain || t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return false
	}
	zero := reflect.Zero(t)
	if t.Kind() == reflect.Pointer {
		zero = reflect.New(t.Elem()).Convert(t)
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.NumField() == 0 ||
		slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.IsExported() }) {
		return false
	}
	text, _ := codec.Encode(zero.Interface().(M)) // a codec that embeds JSON may have its own Encode
	return string(text) == "{}"
}

// decodeError returns an error of encoding/json without the parts of the message that its text
// quotes.
func decodeError(err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Errorf("the field %q does not fit its type %s", mismatch.Field, mismatch.Type)
	}
	return fmt.Errorf("the text is not the JSON of a message (%T)", err)
}

// Text implements [Codec].
func (c JSON[M]) Text(message M) string {
	if c.TextOf != nil {
		return c.TextOf(message)
	}
	return strings.Join(stringsIn(reflect.ValueOf(message)), "\n")
}

// stringsIn returns the strings in v that encoding/json stores. Of a type with a JSON of its own, they are
// those of that JSON. Bytes are no text.
func stringsIn(v reflect.Value) (found []string) {
	if v.IsValid() && v.CanInterface() && isMarshaler(v.Type()) {
		at := reflect.New(v.Type())
		at.Elem().Set(v)
		text, _ := json.Marshal(at.Interface()) // it was encoded before
		var stored any
		_ = json.Unmarshal(text, &stored)
		v = reflect.ValueOf(stored)
	}
	switch v.Kind() {
	case reflect.String:
		return []string{v.String()}
	case reflect.Pointer, reflect.Interface:
		return stringsIn(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" {
				found = append(found, stringsIn(v.Field(i))...)
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			found = append(found, stringsIn(v.MapIndex(key))...)
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && v.Type().Elem().Kind() != reflect.Uint8; i++ {
			found = append(found, stringsIn(v.Index(i))...)
		}
	}
	return found
}

// isMarshaler reports whether a type has a JSON of its own, perhaps with pointer receivers.
func isMarshaler(t reflect.Type) bool {
	t = reflect.PointerTo(t)
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// Document implements [Codec]: a message is its own search result.
func (JSON[M]) Document(message M) M { return message }
