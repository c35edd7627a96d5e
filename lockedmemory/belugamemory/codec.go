package belugamemory

import (
	"bytes"
	"errors"
	"maps"

	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

var _ sessionstore.Codec[schema.Message, schema.Document] = Codec{}

// Codec keeps Beluga's messages in a session store, each as one JSON text (RFC 8259) that can be read in redis-cli:
//
//	{"v":1,"role":"human","parts":[{"type":"text","text":"Where is my order?"}],"metadata":{"channel":"web"}}
//
// It keeps all that a message has: role, every part of every type, tool calls, usage, model ID, tool call ID and metadata. What
// was nil comes back as nil, and what was empty as empty, so that a message that was decoded is deeply equal to the one that was
// encoded, but for the instants and NaNs in its metadata.
//
// # Metadata
//
// Values of these Go types come back as the same type and value:
//
//   - nil, bool, string
//   - int, int8, int16, int32, int64
//   - uint, uint8, uint16, uint32, uint64
//   - float32, float64
//   - []byte, []string, []any
//   - map[string]string, map[string]any
//   - time.Time, time.Duration, json.Number
//
// Lists and maps may nest 100 levels deep, the metadata itself being the first. Strings need not be valid UTF-8. The floats may be
// infinite, -0 or NaN, whose payload bits are lost. A time.Time keeps its instant, to the nanosecond, and its offset; it loses the
// name of its zone and the monotonic reading. Compare it with Equal.
//
// # What is refused
//
// Encode fails for a message that is nil or none of Beluga's four types; for a part that is not one of Beluga's six types, as a
// value; for metadata of any other Go type, types that are only based on a listed one included; for what nests deeper, as a map
// that contains itself does; for a time.Time whose year is not 0 to 9999, or whose offset is a day or more. A store writes nothing
// then. Its errors name keys and Go types, never a text or a value.
//
// Decode fails for every text that Encode cannot have given: what it accepts is, byte for byte, the encoding of what it returns.
//
// # Stability
//
// The format has a number, 1. Every later version of this package reads format 1. As long as it also writes it, the same message
// becomes the same bytes, whatever the version of Go: a Save that is retried after an update is still known by its turn ID. A
// format that older versions cannot read gets the next number, and Decode refuses a number that it does not know: update the
// instances that read before those that write.
type Codec struct{}

// Encode implements [sessionstore.Codec]. The same message always becomes the same bytes.
func (Codec) Encode(message schema.Message) ([]byte, error) {
	w := writer{out: make([]byte, 0, 256)}
	w.message(message)
	if w.err != nil {
		return nil, w.err
	}
	return w.out, nil
}

// Decode implements [sessionstore.Codec]. It does not keep text.
func (Codec) Decode(text []byte) (schema.Message, error) {
	r := reader{in: text}
	message := r.message()
	if r.err != nil {
		return nil, r.err
	}
	// One check instead of many: keys out of order or twice, zero values written out, numbers and escapes written another way.
	w := writer{out: make([]byte, 0, len(text))}
	w.message(message)
	if w.err != nil || !bytes.Equal(w.out, text) {
		return nil, errors.New("belugamemory: cannot decode a message: it says the same in another way than Encode does")
	}
	return message, nil
}

// Text implements [sessionstore.Codec]: the text parts, one a line, as the message's own Text gives them. A message that Encode
// refuses for its type, or for being nil, has none.
func (Codec) Text(message schema.Message) string {
	if !known(message) {
		return ""
	}
	return message.(interface{ Text() string }).Text()
}

// Document implements [sessionstore.Codec]: Content is the text, and Metadata the message's own with its role added as a string
// under "role", unless the message uses that key. The map is a copy; lists and maps inside it are not. A message that Encode
// refuses for its type, or for being nil, gives an empty document.
func (c Codec) Document(message schema.Message) schema.Document {
	if !known(message) {
		return schema.Document{}
	}
	metadata := maps.Clone(message.GetMetadata())
	if metadata == nil {
		metadata = make(map[string]any, 1)
	}
	if _, taken := metadata["role"]; !taken {
		metadata["role"] = string(message.GetRole())
	}
	return schema.Document{Content: c.Text(message), Metadata: metadata}
}

// known reports whether message is one of Beluga's four, and not nil.
func known(message schema.Message) bool {
	switch m := message.(type) {
	case *schema.SystemMessage:
		return m != nil
	case *schema.HumanMessage:
		return m != nil
	case *schema.AIMessage:
		return m != nil
	case *schema.ToolMessage:
		return m != nil
	}
	return false
}
