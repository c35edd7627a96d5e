package sessionstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"
)

// Codec turns messages of type M into bytes and back, and into search results of type D. It is safe
// for concurrent use. Entries outlive versions of the program: a Codec must read the bytes of its
// predecessors. [JSON] is a Codec for plain structs.
type Codec[M, D any] interface {
	// Encode must return the same bytes for the same message each time, in every process and version.
	// By these bytes, the store sees whether a repeated Save of a turn ID has the same messages. A map
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

// JSON is a Codec for plain structs. It uses encoding/json, and so the exported fields of M, its json
// tags, and its json.Marshaler. Numbers in fields of type any come back as float64. A Store refuses a
// JSON if M is a struct without an exported field. It also refuses a codec that embeds a JSON, if
// Encode writes {} for a zero struct.
type JSON[M any] struct {
	// TextOf returns the text in which queries search. Nil: the JSON.
	TextOf func(M) string
}

// Encode implements [Codec]. It refuses a message that is null in JSON, and texts that are not valid
// UTF-8. An escape \ufffd in the JSON of a json.Marshaler is valid if Decode and Encode keep that
// escape, as they do in a json.RawMessage. Neither error shows anything of the message.
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

// Decode implements [Codec]. It refuses null and invalid UTF-8. Its errors show nothing of the message.
func (JSON[M]) Decode(text []byte) (message M, err error) {
	if err = json.Unmarshal(text, &message); err != nil {
		return message, decodeError(err)
	}
	return message, refusal(text)
}

var (
	errUTF8 = errors.New("a text of the message is not valid UTF-8: " +
		"keep other bytes in a []byte, which JSON writes as base64")
	errNull = errors.New("the message is null: store a value")
)

// refusal is the error about JSON that encoding/json accepts, but that is no message.
func refusal(text []byte) error {
	switch {
	case !utf8.Valid(text):
		return errUTF8
	case string(bytes.TrimSpace(text)) == "null":
		return errNull
	}
	return nil
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
	text, _ := json.Marshal(message) // it was encoded before
	return string(text)
}

// Document implements [Codec]: a message is its own search result.
func (JSON[M]) Document(message M) M { return message }
