package tracing

import (
	"regexp"
	"slices"
	"strings"
)

// A key of up to shortWord bytes can be part of another word by accident, a number of up to
// shortNumber bytes part of another number.
const shortWord, shortNumber = 3, 7

// words finds numbers, words and all other characters. A number may have points and a unit, as
// "127.0.0.1" and "1.5ms". In "chat1" the number is separate from the word.
var words = regexp.MustCompile(`\p{Nd}+(\.\p{Nd}+)*\pL*|\pL+|(?s:.)`)

// redacted returns the text of an error, and replaces the key by shown. Errors of this module never
// name the key, but an error of an inner memory may. A short key is replaced only where its words and
// numbers are whole ones of the text: the key "1" leaves "15ms" and "127.0.0.1" readable.
func redacted(text, key, shown string) string {
	switch {
	case key == "": // a call without a session
		return text
	case len(key) > shortNumber, len(key) > shortWord && strings.Trim(key, "0123456789") != "":
		return strings.ReplaceAll(text, key, shown)
	}
	var b strings.Builder
	of := words.FindAllString(key, -1)
	for rest := words.FindAllString(text, -1); len(rest) > 0; {
		if n := len(of); len(rest) >= n && slices.Equal(rest[:n], of) {
			b.WriteString(shown)
			rest = rest[n:]
		} else {
			b.WriteString(rest[0])
			rest = rest[1:]
		}
	}
	return b.String()
}
