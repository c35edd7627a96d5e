package sessionstore_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

type letter struct {
	Text  string
	Notes map[string]any `json:",omitempty"`
	Raw   json.RawMessage
}

// What Encode accepts comes back as it was. It refuses the rest, and shows nothing of it.
func TestJSON_encodeKeepsOrRefuses(t *testing.T) {
	codec := sessionstore.JSON[*letter]{}
	for name, c := range map[string]struct {
		message *letter
		refused bool
	}{
		"plain":                   {&letter{Text: "a"}, false},
		"a valid U+FFFD":          {&letter{Text: "\ufffd", Notes: map[string]any{"\ufffd": "\ufffd"}}, false},
		"the text of the escape":  {&letter{Text: `\ufffd`}, false},
		"behind a backslash":      {&letter{Text: "\\\xffsecret"}, true},
		"invalid UTF-8":           {&letter{Text: "secret\xff"}, true},
		"a surrogate as UTF-8":    {&letter{Text: "secret\xed\xa0\x80"}, true},
		"in a map":                {&letter{Notes: map[string]any{"n": []string{"secret\xff"}}}, true},
		"in the key of a map":     {&letter{Notes: map[string]any{"secret\xff": 1}}, true},
		"in the JSON of the type": {&letter{Raw: json.RawMessage("\"secret\xff\"")}, true},
		"the escape in it":        {&letter{Raw: json.RawMessage(`"\ufffd"`)}, false},
		"beside invalid UTF-8":    {&letter{Text: "secret\xff", Raw: json.RawMessage(`"\ufffd"`)}, true},
		"nil":                     {nil, true},
	} {
		text, err := codec.Encode(c.message)
		switch {
		case c.refused && err == nil:
			got, _ := codec.Decode(text)
			t.Errorf("%s: encoded as %s, which comes back as %+v; want an error", name, text, got)
		case c.refused && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error shows the message: %v", name, err)
		case c.refused:
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			if got, err := codec.Decode(text); err != nil || got.Text != c.message.Text ||
				len(got.Notes) != len(c.message.Notes) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
}

func TestJSON_nullOrInvalidUTF8_refused(t *testing.T) {
	for _, text := range []string{"null", " null\n", "{\"Text\":\"secret\xff\"}", "{\"Text\":\"secret\xed\xa0\x80\"}"} {
		if got, err := (sessionstore.JSON[letter]{}).Decode([]byte(text)); err == nil ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %+v, %v; want an error that does not show it", text, got, err)
		}
	}
}

// letterText is text by its methods.
type letterText struct{ text string }

func (l *letterText) UnmarshalText(text []byte) error { l.text = string(text); return nil }
func (l *letterText) MarshalText() ([]byte, error)    { return []byte(l.text), nil }

type Signed struct{ By string }

// The words of a query are searched for in what a message says, not in its JSON.
func TestJSON_text(t *testing.T) {
	type part struct {
		Type, Text string
	}
	type message struct {
		Role  string
		Parts []part
		Notes map[string]any `json:",omitempty"`
		Raw   json.RawMessage
		Next  *part
		Own   letterText
		N     int
		Left  string `json:"-"`
		*Signed
	}
	m := &message{Role: "user", Left: "not stored", Parts: []part{{Type: "text", Text: "R&D <b>"}, {Text: "two\nlines"}},
		Notes: map[string]any{"key": []any{"a note", 5.5, nil, map[string]any{"inner": "deep"}}},
		Raw:   json.RawMessage(`{"raw":"quoted \u0026 kept"}`), Own: letterText{"own"}, N: 42, Signed: &Signed{"Ada"}}
	text := sessionstore.JSON[*message]{}.Text(m)
	for _, want := range []string{"user", "R&D", "<b>", "two\nlines", "a note", "deep", "quoted & kept", "own", "Ada"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	for _, not := range []string{"Role", "Parts", "key", "inner", "raw", "By", "42", "not stored", `\`, `"`, "null"} {
		if strings.Contains(text, not) {
			t.Errorf("%q has %q", text, not)
		}
	}
	for name, got := range map[string]string{
		"a string": sessionstore.JSON[string]{}.Text(`R&D "x"`), "any": sessionstore.JSON[any]{}.Text(`R&D "x"`),
		"JSON":   sessionstore.JSON[json.RawMessage]{}.Text(json.RawMessage(`{"role":"R\u0026D \"x\""}`)),
		"TextOf": sessionstore.JSON[int]{TextOf: func(int) string { return `R&D "x"` }}.Text(5),
	} {
		if got != `R&D "x"` {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Queries of a store find texts as they were written.
func TestJSON_queryFindsTexts(t *testing.T) {
	d, err := memstore.NewDriver(nil)
	must(t, err)
	memory, _, _ := with(t, d, sessionstore.JSON[map[string]string]{}, nil)
	must(t, memory.Save(t.Context(), map[string]string{"role": "user", "text": "Ask R&D"}, map[string]string{"role": "ai"}))
	for query, want := range map[string]int{"r&d": 1, "role": 0, "ask USER": 1} {
		found, err := memory.Search(t.Context(), query, 5)
		loaded, err2 := memory.Load(t.Context(), query)
		if len(found) != want || len(loaded) != 2*want || err != nil || err2 != nil {
			t.Errorf("%s: %v %v, %v %v, want %d", query, found, err, loaded, err2, want)
		}
	}
}

// Nothing of a struct without exported fields would be stored.
func TestJSON_withoutExportedFields_refused(t *testing.T) {
	type hidden struct{ text string }
	if _, err := (sessionstore.JSON[hidden]{}).Encode(hidden{"secret"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v; want an error that does not show the message", err)
	}
	type empty struct {
		Text string `json:"text,omitempty"`
	}
	text, err := sessionstore.JSON[*empty]{}.Encode(&empty{})
	if err != nil {
		t.Errorf("an empty message: %v", err)
	}
	if _, err := (sessionstore.JSON[*empty]{}).Decode(text); err != nil {
		t.Errorf("an empty message: %v", err)
	}
}
