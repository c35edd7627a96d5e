package wire

import "bytes"

// scanner finds the requests in what a client writes to one connection: arrays of bulk strings in
// the Redis serialisation protocol, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n". Writes end anywhere, so it
// keeps its state between them; and it skips the payload of a bulk string by its length, because a
// payload can contain anything, also what looks like a request.
//
// A line that begins no array is an inline command, as people type it.
type scanner struct {
	line    []byte // the current line so far: a header, or an inline command
	args    int    // how many bulk strings of the request are still to begin
	payload int    // how many bytes of the current bulk string are left, its CRLF included
	inArg   bool   // whether the next byte belongs to a bulk string, not to a line
	arg     int    // which one, from 0
	name    []byte // the command's first two words, as far as they matter
}

// Longer words are not the beginning of any command that sets a connection up. What is kept of an
// inline command is no more than that.
const (
	maxWord = 16
	maxLine = 64
)

// scan takes what was written and returns how many of the requests that end in it are counted.
func (s *scanner) scan(p []byte) (commands int) {
	for len(p) > 0 {
		var ended bool
		if s.inArg {
			p, ended = s.skip(p)
		} else {
			p, ended = s.header(p)
		}
		if !ended {
			continue
		}
		if !setsUp(s.name) {
			commands++
		}
		s.name = s.name[:0]
	}
	return commands
}

// skip passes over the current bulk string and reports whether the request ends with it.
func (s *scanner) skip(p []byte) (rest []byte, ended bool) {
	n := min(s.payload, len(p))
	if s.arg < 2 {
		text := p[:min(n, max(0, s.payload-len("\r\n")))]
		s.name = append(s.name, text[:min(len(text), maxWord)]...)
	}
	s.payload -= n
	if s.payload > 0 {
		return p[n:], false
	}
	s.inArg = false
	s.arg++
	if s.arg == 1 {
		s.name = append(s.name, ' ')
	}
	return p[n:], s.args == 0
}

// header reads up to the end of a line and reports whether it was a whole request.
func (s *scanner) header(p []byte) (rest []byte, ended bool) {
	i := bytes.IndexByte(p, '\n')
	if i < 0 {
		s.keep(p)
		return nil, false
	}
	s.keep(p[:i])
	line := bytes.TrimSuffix(s.line, []byte("\r"))
	s.line = s.line[:0]
	rest = p[i+1:]
	switch {
	case len(line) == 0:
		return rest, false
	case s.args > 0 && line[0] == '$':
		s.args--
		s.inArg, s.payload = true, number(line[1:])+len("\r\n")
		return rest, false
	case line[0] == '*':
		s.args, s.arg = number(line[1:]), 0
		return rest, false
	default:
		s.name = append(s.name, line...)
		return rest, true
	}
}

func (s *scanner) keep(p []byte) {
	s.line = append(s.line, p[:min(len(p), maxLine-len(s.line))]...)
}

func number(digits []byte) (n int) {
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0
		}
		n = 10*n + int(d-'0')
	}
	return n
}

// setsUp reports whether a command with this name, its first two words, belongs to the making of a
// connection.
func setsUp(name []byte) bool {
	word, second, _ := bytes.Cut(bytes.ToUpper(name), []byte(" "))
	switch string(word) {
	case "HELLO", "AUTH", "SELECT", "READONLY":
		return true
	case "CLIENT":
		return !bytes.HasPrefix(second, []byte("CACHING"))
	default:
		return false
	}
}
