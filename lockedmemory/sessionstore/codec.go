package sessionstore

import "encoding/json"

// Codec turns messages of type M into bytes and back, and into what a search gives back, a D. It is safe for concurrent use.
type Codec[M, D any] interface {
	// Encode must give the same bytes for the same message each time: that is how a repeated turn ID is told from one that is
	// used for something else.
	Encode(message M) ([]byte, error)
	// Decode is the inverse of Encode. It must fail for bytes that Encode cannot have given.
	Decode(text []byte) (M, error)
	// Text is what queries search in.
	Text(message M) string
	// Document is the message as a search result.
	Document(message M) D
}

// JSON is a Codec for plain structs: what encoding/json writes and reads of the exported fields of M. A type that implements
// json.Marshaler or has json tags is encoded accordingly. Numbers in fields of type any come back as float64.
type JSON[M any] struct {
	// TextOf is what queries search in. Nil: the JSON.
	TextOf func(M) string
}

// Encode implements [Codec].
func (JSON[M]) Encode(message M) ([]byte, error) { return json.Marshal(message) }

// Decode implements [Codec].
func (JSON[M]) Decode(text []byte) (message M, err error) {
	err = json.Unmarshal(text, &message)
	return message, err
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
