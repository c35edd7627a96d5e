package distlock

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

const (
	maxKey       = 1024
	maxNamespace = 128
	maxHolder    = 256
)

// validKey refuses a key that a backend could not store or a log could not show: PostgreSQL's text takes
// no NUL, telemetry takes only UTF-8, and line breaks could forge log lines. The key is not in the error.
func validKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty: a lock needs a name, such as the session's ID", ErrInvalidKey)
	case len(key) > maxKey:
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed: use a shorter ID, or a hash of this one",
			ErrInvalidKey, len(key), maxKey)
	}
	if problem := badText(key); problem != "" {
		return fmt.Errorf("%w: it contains %s: encode the key first, for example as hexadecimal", ErrInvalidKey, problem)
	}
	return nil
}

func badText(s string) string {
	if !utf8.ValidString(s) {
		return "bytes that are not UTF-8"
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return "a control character"
		}
	}
	return ""
}
