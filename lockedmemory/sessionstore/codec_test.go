package sessionstore_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
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

type (
	hidden    struct{ text string }
	marshaler struct{ text string }
	inner     struct{ Text string }
)

func (h hidden) String() string { return h.text }

func (m marshaler) MarshalJSON() ([]byte, error) { return json.Marshal(m.text) }

// textual is a codec that embeds JSON, but encodes by itself.
type textual struct{ sessionstore.JSON[*hidden] }

func (textual) Encode(m *hidden) ([]byte, error) { return json.Marshal(m.text) }

// made is the error of a store with a JSON of messages.
func made[M any]() error {
	_, err := memstore.New(lockedmemory.FixedKey("s"), sessionstore.JSON[M]{}, nil, nil)
	return err
}

func TestNew_typeWithoutExportedFields_refused(t *testing.T) {
	embedding := func() error {
		_, err := memstore.New[hidden, hidden](lockedmemory.FixedKey("s"), struct{ sessionstore.JSON[hidden] }{}, nil, nil)
		return err
	}
	for name, err := range map[string]error{
		"a struct": made[hidden](), "a pointer": made[*hidden](), "an embedded one": made[struct{ hidden }](),
		"a codec that embeds JSON": embedding(),
	} {
		if !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%s without exported fields: %v, want ErrInvalidOption", name, err)
		}
	}
	_, own := memstore.New[*hidden, *hidden](lockedmemory.FixedKey("s"), textual{}, nil, nil)
	for name, err := range map[string]error{
		"no fields": made[struct{}](), "omitempty": made[struct {
			Text string `json:",omitempty"`
		}](), "an embedded field": made[struct{ inner }](), "a Marshaler": made[marshaler](),
		"a TextMarshaler":             made[time.Time](),
		"a codec with its own Encode": own, "a string": made[string](), "any": made[any](),
		"a map": made[map[string]string](),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
