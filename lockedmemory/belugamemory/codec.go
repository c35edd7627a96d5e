package belugamemory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

var _ sessionstore.Codec[schema.Message, schema.Document] = Codec{}

// Codec stores Beluga's messages, each as one JSON text that redis-cli can show:
//
//	{"v":1,"role":"human","parts":[{"type":"text","text":"Where is my order?"}],"metadata":{"a":true}}
//
// A decoded message is deeply equal to the encoded one: nil stays nil, and empty stays empty.
// Metadata has the only exceptions. Values of these Go types keep type and value, also in each other:
//
//   - nil, bool, string
//   - int, int8, int16, int32, int64
//   - uint, uint8, uint16, uint32, uint64
//   - float32, float64
//   - []byte, []string, []any
//   - map[string]string, map[string]any
//   - time.Time, time.Duration, json.Number
//
// Strings may hold bytes that are not UTF-8. Floats may be infinite, -0 or NaN; a NaN loses its
// payload bits. A time.Time keeps its instant, to the nanosecond, and its offset. It loses the name
// of its zone and its monotonic reading: compare times with Equal.
//
// Values of all other types are stored by encoding/json and come back as JSON types: map[string]any,
// []any, float64, string, bool or nil. []int{1} comes back as []any{1.0}. Unexported fields are lost.
//
// Encode refuses nil and other types of messages, other types of parts and pointers to parts, and
// text outside metadata that is not valid UTF-8. It refuses metadata that encoding/json cannot store,
// such as a channel, a function, a cycle, a NaN in a struct, or a MarshalJSON that fails or panics.
// Lists, maps, structs and pointers in metadata nest at most 100 levels deep. Years of times are 0 to
// 9999. Its errors name keys and Go types, never a text or a value.
//
// Decode refuses texts that are cut off, are not UTF-8, or go on after the message. It refuses unknown
// versions, roles, fields, parts and tags. It accepts fields that are repeated, in another order, in
// another case, or that only other roles and parts use.
//
// This package writes version 1 and reads versions 1 and 2. It ignores unknown fields and parts of
// version 2, so instances of both versions can share sessions during an update.
//
// The same message always becomes the same bytes, if the MarshalJSON methods in its metadata allow
// that: encoding/json sorts keys and writes each number in one way. A session store compares the
// bytes when a turn ID is used again. Only a new release of Go can change them, as Go 1.22 changed
// the escape of a backspace. A Save that is repeated across such an update fails with
// sessionstore.ErrTurnConflict and is not stored twice.
type Codec struct{}

// formatVersion is the version that Encode writes. Every version begins with {"v": and its number.
const formatVersion = 1

// Encode implements [sessionstore.Codec].
func (Codec) Encode(message schema.Message) ([]byte, error) {
	if !known(message) {
		return nil, fmt.Errorf("belugamemory: cannot encode a message: it is nil or a %T; it must be a *schema.SystemMessage, "+
			"*schema.HumanMessage, *schema.AIMessage or *schema.ToolMessage", message)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // people read the text in redis-cli
	m, err := mirrorOf(message)
	if err == nil {
		err = encoder.Encode(m)
	}
	if err != nil {
		return nil, fmt.Errorf("belugamemory: cannot encode a message: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Decode implements [sessionstore.Codec]. It does not keep text.
func (Codec) Decode(text []byte) (schema.Message, error) {
	message, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("belugamemory: cannot decode a message: %w", err)
	}
	return message, nil
}

func decode(text []byte) (schema.Message, error) {
	var version int
	_, err := fmt.Sscanf(string(text[:min(len(text), 32)]), `{"v":%d,`, &version)
	switch {
	case err != nil || version < 1:
		return nil, errors.New(`it does not begin with {"v":1, as all messages of this package do`)
	case version > formatVersion+1:
		return nil, fmt.Errorf("its version is %d, and this package reads versions 1 to %d: update this instance", version, formatVersion+1)
	case !utf8.Valid(text):
		return nil, errors.New("it is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if version == formatVersion {
		decoder.DisallowUnknownFields()
	}
	var stored mirror
	if err := decoder.Decode(&stored); err != nil { // whose text can quote the message
		return nil, fmt.Errorf("it is no JSON, or a field is unknown or of another type (%T)", err)
	}
	if decoder.InputOffset() != int64(len(text)) {
		return nil, errors.New("more bytes follow it")
	}
	return stored.message()
}

// Text implements [sessionstore.Codec]: the text parts, one a line, as the message's own Text gives
// them. A message that Encode refuses for its type, or for being nil, has no text.
func (Codec) Text(message schema.Message) string {
	if !known(message) {
		return ""
	}
	return message.(interface{ Text() string }).Text()
}

// Document implements [sessionstore.Codec]. Content is the text. Metadata is a copy of the message's
// own, with the role added as a string under "role" unless the message uses that key; lists and maps
// inside it are not copied. A message that Encode refuses for its type, or for being nil, gives an
// empty document.
func (c Codec) Document(message schema.Message) schema.Document {
	if !known(message) {
		return schema.Document{}
	}
	metadata := map[string]any{"role": string(message.GetRole())}
	maps.Copy(metadata, message.GetMetadata())
	return schema.Document{Content: c.Text(message), Metadata: metadata}
}

// known reports whether message is one of Beluga's four, and not nil.
func known(message schema.Message) bool {
	switch message.(type) {
	case *schema.SystemMessage, *schema.HumanMessage, *schema.AIMessage, *schema.ToolMessage:
		return !reflect.ValueOf(message).IsNil()
	}
	return false
}
