package belugamemory

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// writer appends JSON to out, until something is refused: then err says what, and out is of no use.
//
// It is not encoding/json because the bytes must stay the same for years, and encoding/json has changed them (Go 1.22 escapes \b
// and \f in another way than Go 1.21); because that replaces bytes that are not UTF-8 without a word; and for its speed.
type writer struct {
	out   []byte
	depth int // of nested metadata
	err   error
}

func (w *writer) refuse(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("belugamemory: cannot encode a message: "+format, args...)
	}
}

func (w *writer) message(message schema.Message) {
	switch m := message.(type) {
	case nil:
		w.refuse("it is nil")
	case *schema.SystemMessage:
		if w.begin(schema.RoleSystem, m == nil) {
			systemFields(w, m)
		}
	case *schema.HumanMessage:
		if w.begin(schema.RoleHuman, m == nil) {
			humanFields(w, m)
		}
	case *schema.AIMessage:
		if w.begin(schema.RoleAI, m == nil) {
			aiFields(w, m)
		}
	case *schema.ToolMessage:
		if w.begin(schema.RoleTool, m == nil) {
			toolFields(w, m)
		}
	default:
		w.refuse("it is a %T; it must be a *schema.SystemMessage, *schema.HumanMessage, *schema.AIMessage or *schema.ToolMessage", message)
	}
	w.append("}")
}

func (w *writer) begin(role schema.Role, isNil bool) bool {
	if isNil {
		w.refuse("it is a nil pointer to a message of role %s", role)
		return false
	}
	w.append(`{"v":`)
	w.out = strconv.AppendInt(w.out, formatVersion, 10)
	w.field("role")
	w.quote(string(role))
	return true
}

func (w *writer) parts(name string, parts *[]schema.ContentPart) {
	if *parts == nil {
		return
	}
	w.field(name)
	w.append("[")
	for i, part := range *parts {
		w.comma()
		w.part(i, part)
	}
	w.append("]")
}

func (w *writer) part(i int, part schema.ContentPart) {
	switch p := part.(type) {
	case nil:
		w.refuse("part %d is nil", i)
	case schema.TextPart:
		w.beginPart(schema.ContentText)
		textFields(w, &p)
	case schema.ImagePart:
		w.beginPart(schema.ContentImage)
		imageFields(w, &p)
	case schema.AudioPart:
		w.beginPart(schema.ContentAudio)
		audioFields(w, &p)
	case schema.VideoPart:
		w.beginPart(schema.ContentVideo)
		videoFields(w, &p)
	case schema.FilePart:
		w.beginPart(schema.ContentFile)
		fileFields(w, &p)
	case schema.ThinkingPart:
		w.beginPart(schema.ContentThinking)
		thinkingFields(w, &p)
	default:
		w.refuse("part %d is a %T; it must be a schema.TextPart, ImagePart, AudioPart, VideoPart, FilePart or ThinkingPart, "+
			"and no pointer to one", i, part)
	}
	w.append("}")
}

func (w *writer) beginPart(kind schema.ContentType) {
	w.append("{")
	w.field("type")
	w.quote(string(kind))
}

func (w *writer) toolCalls(name string, calls *[]schema.ToolCall) {
	if *calls == nil {
		return
	}
	w.field(name)
	w.append("[")
	for i := range *calls {
		w.comma()
		w.append("{")
		toolCallFields(w, &(*calls)[i])
		w.append("}")
	}
	w.append("]")
}

func (w *writer) usage(name string, usage *schema.Usage) {
	if *usage == (schema.Usage{}) {
		return
	}
	w.field(name)
	w.append("{")
	usageFields(w, usage)
	w.append("}")
}

func (w *writer) text(name string, s *string) {
	if *s != "" {
		w.field(name)
		w.string(*s)
	}
}

func (w *writer) number(name string, n *int) {
	if *n != 0 {
		w.field(name)
		w.out = strconv.AppendInt(w.out, int64(*n), 10)
	}
}

func (w *writer) data(name string, b *[]byte) {
	if *b != nil {
		w.field(name)
		w.base64(*b)
	}
}

// field writes the name of a field of this format; a name from elsewhere may need escapes, or not be UTF-8.
func (w *writer) field(name string) {
	w.comma()
	w.append(`"`)
	w.append(name)
	w.append(`":`)
}

// comma writes one unless it is the first that follows a bracket. No value ends with an opening one.
func (w *writer) comma() {
	if last := w.out[len(w.out)-1]; last != '{' && last != '[' {
		w.append(",")
	}
}

// string writes s as it is, or tagged where JSON has no form for its bytes.
func (w *writer) string(s string) {
	if utf8.ValidString(s) {
		w.quote(s)
		return
	}
	w.append(`{"$base64":`)
	w.base64([]byte(s))
	w.append("}")
}

func (w *writer) base64(b []byte) {
	w.append(`"`)
	w.out = base64.StdEncoding.AppendEncode(w.out, b)
	w.append(`"`)
}

// quote escapes what RFC 8259 says must be escaped, and nothing else.
func (w *writer) quote(s string) {
	const hex = "0123456789abcdef"
	w.append(`"`)
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		w.append(s[start:i])
		start = i + 1
		switch c {
		case '"', '\\':
			w.out = append(w.out, '\\', c)
		case '\n':
			w.append(`\n`)
		case '\r':
			w.append(`\r`)
		case '\t':
			w.append(`\t`)
		default:
			w.out = append(w.out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	w.append(s[start:])
	w.append(`"`)
}

func (w *writer) append(s string) { w.out = append(w.out, s...) }
