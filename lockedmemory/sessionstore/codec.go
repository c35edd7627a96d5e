package sessionstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Codec turns messages of type M into bytes and back, and into search results of type D. It is safe
// for concurrent use. Entries outlive versions of the program: a Codec must read the bytes of its
// predecessors.
type Codec[M, D any] interface {
	// Encode must return the same bytes for the same message each time, in every process and version. A
	// map in random order, or the time of the encoding, makes each repeated SaveOnce an [ErrIDConflict].
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
type JSON[M any] struct {
	// TextOf returns the text in which queries search. Nil: the strings in the JSON of the message, one a
	// line, without names of fields and keys.
	TextOf func(M) string
}

// Encode refuses null, texts that are not valid UTF-8, and a struct with fields of which none is exported. No
// error shows anything of the message.
func (JSON[M]) Encode(message M) ([]byte, error) {
	text, err := json.Marshal(message)
	switch {
	case err != nil:
		return nil, err
	case isReplaced[M](text):
		return nil, errUTF8
	}
	return text, jsonProblem[M](text)
}

// Decode refuses what Encode refuses.
func (JSON[M]) Decode(text []byte) (message M, err error) {
	if err = json.Unmarshal(text, &message); err != nil {
		return message, decodeError(err)
	}
	return message, jsonProblem[M](text)
}

var (
	errUTF8 = errors.New("a text of the message is not valid UTF-8: " +
		"keep other bytes in a []byte, which JSON writes as base64")
	errNull   = errors.New("the message is null: store a value")
	errHidden = errors.New("nothing of the message would be stored: export its fields")
)

// jsonProblem is the error about JSON that encoding/json accepts, but that is no message.
func jsonProblem[M any](text []byte) error {
	shown := string(bytes.TrimSpace(text))
	switch {
	case !utf8.Valid(text):
		return errUTF8
	case shown == "null":
		return errNull
	case shown == "{}" && hidesAll(reflect.TypeFor[M]()):
		return errHidden
	}
	return nil
}

// hidesAll reports whether a type, or what it points to, is a struct with fields, and exports none.
func hidesAll(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && t.NumField() > 0 &&
		!slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.IsExported() })
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
	text, _ := json.Marshal(message) // it was encoded before
	var stored any
	_ = json.Unmarshal(text, &stored)
	return strings.Join(stringsIn(stored), "\n")
}

// stringsIn returns the strings in a decoded JSON, without the names of fields.
func stringsIn(stored any) (found []string) {
	switch stored := stored.(type) {
	case string:
		return []string{stored}
	case []any:
		for _, element := range stored {
			found = append(found, stringsIn(element)...)
		}
	case map[string]any:
		for _, value := range stored {
			found = append(found, stringsIn(value)...)
		}
	}
	return found
}

// Document returns the message itself.
func (JSON[M]) Document(message M) M { return message }
