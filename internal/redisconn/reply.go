package redisconn

import "errors"

// UnknownReply is the error of a reply in an unknown format to the package caller. It has no kind: Redis has
// executed the command, but the reply does not show its result.
func UnknownReply(caller string) error {
	return errors.New(caller + ": Redis returned a reply in an unknown format: " +
		"use one version of this library in all processes, and no proxy that changes replies")
}

// Reply reads the parts of a script's reply in order. It keeps its error.
type Reply struct {
	Parts   []any // that are left
	Err     error // Unknown from the first wrong part on
	Unknown error // of a reply in an unknown format
}

func next[T any](r *Reply) (part T) {
	if len(r.Parts) > 0 {
		if part, ok := r.Parts[0].(T); ok {
			r.Parts = r.Parts[1:]
			return part
		}
	}
	r.Err = r.Unknown
	return part
}

// Text reads a text.
func (r *Reply) Text() string { return next[string](r) }

// Integer reads a number.
func (r *Reply) Integer() int64 { return next[int64](r) }

// List reads a list.
func (r *Reply) List() []any { return next[[]any](r) }

// Texts reads a list of texts.
func (r *Reply) Texts() (texts []string) {
	for _, part := range r.List() {
		text, ok := part.(string)
		if !ok {
			r.Err = r.Unknown
		}
		texts = append(texts, text)
	}
	return texts
}

// Number reads a number of at least 0.
func (r *Reply) Number() int64 {
	n := r.Integer()
	if n < 0 {
		r.Err = r.Unknown
	}
	return n
}

// End returns the error of the reply. Parts that are left are an error.
func (r *Reply) End() error {
	if r.Err == nil && len(r.Parts) > 0 {
		return r.Unknown
	}
	return r.Err
}
