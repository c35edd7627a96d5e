package belugamemory

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// reader reads what writer writes, in that order, until something else stands there: then err says where. It is strict where that
// costs nothing; Decode sees to the rest.
type reader struct {
	in    []byte
	at    int
	depth int // of nested metadata
	err   error
}

// fail never shows what stands in the text.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("belugamemory: cannot decode a message: at byte %d: %s", r.at, fmt.Sprintf(format, args...))
		r.at = len(r.in) // ends every loop
	}
}

func (r *reader) message() schema.Message {
	r.version()
	if !r.field("role") {
		r.fail("a role must stand here")
	}
	var message schema.Message
	switch role := schema.Role(r.quoted()); role {
	case schema.RoleSystem:
		m := new(schema.SystemMessage)
		systemFields(r, m)
		message = m
	case schema.RoleHuman:
		m := new(schema.HumanMessage)
		humanFields(r, m)
		message = m
	case schema.RoleAI:
		m := new(schema.AIMessage)
		aiFields(r, m)
		message = m
	case schema.RoleTool:
		m := new(schema.ToolMessage)
		toolFields(r, m)
		message = m
	default:
		r.fail("the role before is unknown")
	}
	r.close()
	if r.at < len(r.in) {
		r.fail("text after the end")
	}
	return message
}

// version comes before anything else is read: of a later format nothing but this is known.
func (r *reader) version() {
	r.want(`{"v":`)
	start := r.at
	for r.at < len(r.in) && '0' <= r.in[r.at] && r.in[r.at] <= '9' {
		r.at++
	}
	if r.err != nil {
		return
	}
	switch v, err := strconv.Atoi(string(r.in[start:r.at])); {
	case err != nil || v < formatVersion:
		r.fail("no number of a format before")
	case v > formatVersion:
		r.err = fmt.Errorf("belugamemory: cannot decode a message: it was written by a newer version of this package, in format %d; "+
			"this version reads format %d", v, formatVersion)
		r.at = len(r.in)
	}
}

func (r *reader) parts(name string, parts *[]schema.ContentPart) {
	if !r.field(name) {
		return
	}
	*parts = []schema.ContentPart{}
	for r.want("["); r.more(']'); {
		*parts = append(*parts, r.part())
	}
}

func (r *reader) part() (part schema.ContentPart) {
	r.want("{")
	if !r.field("type") {
		r.fail("the type of a part must stand here")
	}
	switch schema.ContentType(r.quoted()) {
	case schema.ContentText:
		var p schema.TextPart
		textFields(r, &p)
		part = p
	case schema.ContentImage:
		var p schema.ImagePart
		imageFields(r, &p)
		part = p
	case schema.ContentAudio:
		var p schema.AudioPart
		audioFields(r, &p)
		part = p
	case schema.ContentVideo:
		var p schema.VideoPart
		videoFields(r, &p)
		part = p
	case schema.ContentFile:
		var p schema.FilePart
		fileFields(r, &p)
		part = p
	case schema.ContentThinking:
		var p schema.ThinkingPart
		thinkingFields(r, &p)
		part = p
	default:
		r.fail("the type of a part before is unknown")
	}
	r.close()
	return part
}

func (r *reader) toolCalls(name string, calls *[]schema.ToolCall) {
	if !r.field(name) {
		return
	}
	*calls = []schema.ToolCall{}
	for r.want("["); r.more(']'); {
		var call schema.ToolCall
		r.want("{")
		toolCallFields(r, &call)
		r.close()
		*calls = append(*calls, call)
	}
}

func (r *reader) usage(name string, usage *schema.Usage) {
	if r.field(name) {
		r.want("{")
		usageFields(r, usage)
		r.close()
	}
}

func (r *reader) text(name string, s *string) {
	if r.field(name) {
		*s = r.string()
	}
}

func (r *reader) number(name string, n *int) {
	if !r.field(name) {
		return
	}
	var err error
	if *n, err = strconv.Atoi(r.numeral()); err != nil {
		r.fail("no number that an int holds before")
	}
}

func (r *reader) data(name string, b *[]byte) {
	if r.field(name) {
		*b = r.base64()
	}
}

// field steps over the name of a field and its comma, if that is what comes next.
func (r *reader) field(name string) bool {
	rest := r.in[r.at:]
	if r.at > 0 && r.in[r.at-1] != '{' {
		if len(rest) == 0 || rest[0] != ',' {
			return false
		}
		rest = rest[1:]
	}
	n := len(name)
	if len(rest) < n+3 || rest[0] != '"' || string(rest[1:n+1]) != name || rest[n+1] != '"' || rest[n+2] != ':' {
		return false
	}
	r.at = len(r.in) - len(rest) + n + 3
	return true
}

// close ends an object whose fields have all been looked for.
func (r *reader) close() {
	if r.next() == ',' {
		r.fail("unknown field, or not in its place")
	}
	r.want("}")
}

// more reports whether another element of a list or object follows. It steps over the comma before that, or the closing bracket.
func (r *reader) more(closing byte) bool {
	first := r.at > 0 && (r.in[r.at-1] == '[' || r.in[r.at-1] == '{')
	switch c := r.next(); {
	case r.err != nil:
		return false
	case c == closing:
		r.at++
		return false
	case first:
		return true
	}
	r.want(",")
	return r.err == nil
}

// next is the byte that comes next, 0 at the end.
func (r *reader) next() byte {
	if r.at < len(r.in) {
		return r.in[r.at]
	}
	return 0
}

func (r *reader) follows(token string) bool {
	return len(r.in)-r.at >= len(token) && string(r.in[r.at:r.at+len(token)]) == token
}

func (r *reader) want(token string) {
	if !r.follows(token) {
		r.fail("%s must stand here", token)
		return
	}
	r.at += len(token)
}

func (r *reader) string() string {
	if r.next() == '"' {
		return r.quoted()
	}
	r.want(`{"$base64":`)
	b := r.base64()
	r.want("}")
	return string(b)
}

func (r *reader) base64() []byte {
	r.want(`"`)
	length := bytes.IndexByte(r.in[r.at:], '"')
	if length < 0 {
		r.fail("a string does not end")
		return nil
	}
	b, err := base64.StdEncoding.AppendDecode([]byte{}, r.in[r.at:r.at+length])
	if err != nil {
		r.fail("no base64 here")
		return nil
	}
	r.at += length + 1
	return b
}

func (r *reader) quoted() string {
	r.want(`"`)
	start := r.at
	for i, c := range r.in[start:] {
		switch {
		case c == '"':
			r.at = start + i + 1
			return string(r.in[start : start+i])
		case c == '\\':
			return r.escaped()
		}
	}
	r.fail("a string does not end")
	return ""
}

// escaped reads the rest of a string that has escapes.
func (r *reader) escaped() string {
	var s []byte
	for r.at < len(r.in) {
		c := r.in[r.at]
		r.at++
		switch {
		case c == '"':
			return string(s)
		case c != '\\':
			s = append(s, c)
			continue
		}
		c = r.next()
		r.at++
		switch c {
		case '"', '\\':
			s = append(s, c)
		case 'n':
			s = append(s, '\n')
		case 'r':
			s = append(s, '\r')
		case 't':
			s = append(s, '\t')
		case 'u':
			if !r.follows("00") {
				r.fail("unknown escape")
				return ""
			}
			code, err := strconv.ParseUint(string(r.in[r.at+2:min(r.at+4, len(r.in))]), 16, 8)
			if err != nil {
				r.fail("unknown escape")
				return ""
			}
			s = append(s, byte(code))
			r.at += 4
		default:
			r.fail("unknown escape")
			return ""
		}
	}
	r.fail("a string does not end")
	return ""
}

// numeral reads what may be a JSON number.
func (r *reader) numeral() string {
	start := r.at
	for r.at < len(r.in) {
		switch c := r.in[r.at]; {
		case '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'e':
			r.at++
			continue
		}
		break
	}
	return string(r.in[start:r.at])
}
