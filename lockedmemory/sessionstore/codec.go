package sessionstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

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

// Decode implements [Codec]. Its errors show nothing of the message.
func (JSON[M]) Decode(text []byte) (message M, err error) {
	if err = json.Unmarshal(text, &message); err != nil {
		err = &decodeError{err}
	}
	return message, err
}

// decodeError is an error of encoding/json whose text does not quote the message, as that of a number or time does.
type decodeError struct{ error }

func (e *decodeError) Error() string {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(e.error, &syntax):
		return syntax.Error()
	case errors.As(e.error, &mismatch):
		discreet := *mismatch
		discreet.Value, _, _ = strings.Cut(mismatch.Value, " ") // "number 12"
		return discreet.Error()
	default:
		return fmt.Sprintf("a value does not have the form that its type wants (%T)", e.error)
	}
}

func (e *decodeError) Unwrap() error { return e.error }

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
