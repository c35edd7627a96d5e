package faultnet

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// What a request and a reply begin with in RESP 2 and 3. Requests that are not arrays, which are
// typed by hand, are not taken for RESP.
const (
	requestKinds = "*"
	replyKinds   = "+-:$*_#,(!=%~>|"
)

var errNotRESP = errors.New("not RESP")

// framer cuts a stream into the values of RESP.
type framer struct {
	r      *bufio.Reader
	kinds  string // what a value begins with
	opaque bool   // the stream has turned out to be something else
}

func newFramer(r io.Reader, kinds string) *framer {
	return &framer{r: bufio.NewReaderSize(r, 64<<10), kinds: kinds}
}

// next returns the next value as it came or, once the stream is not RESP, whatever has come. With
// an error, there may be the beginning of a value.
func (f *framer) next() ([]byte, error) {
	var b bytes.Buffer
	if !f.opaque {
		first, err := f.r.Peek(1)
		if err != nil {
			return nil, err
		}
		if strings.IndexByte(f.kinds, first[0]) >= 0 {
			err := f.value(&b)
			if !errors.Is(err, errNotRESP) {
				return b.Bytes(), err
			}
		}
		f.opaque = true
		if b.Len() > 0 {
			return b.Bytes(), nil
		}
	}
	if _, err := f.r.Peek(1); err != nil {
		return nil, err
	}
	_, err := io.CopyN(&b, f.r, int64(f.r.Buffered()))
	return b.Bytes(), err
}

// value copies one value, and what it holds, to b.
func (f *framer) value(b *bytes.Buffer) error {
	line, err := f.r.ReadBytes('\n')
	b.Write(line)
	if err != nil {
		return err
	}
	kind := line[0]
	if !strings.ContainsRune("$!=*~>%|", rune(kind)) {
		return nil // it is all in the line
	}
	n, err := strconv.ParseInt(strings.TrimRight(string(line[1:]), "\r\n"), 10, 64)
	if err != nil {
		return errNotRESP
	}
	switch kind {
	case '$', '!', '=':
		if n >= 0 {
			_, err = io.CopyN(b, f.r, n+int64(len("\r\n")))
		}
		return err
	case '%':
		n *= 2
	case '|':
		n = 2*n + 1 // an attribute belongs to the value after it
	}
	for range max(n, 0) {
		if err := f.value(b); err != nil {
			return err
		}
	}
	return nil
}

// isRESP tells whether a request is an array, as clients send them.
func isRESP(request []byte) bool { return bytes.HasPrefix(request, []byte(requestKinds)) }

// word returns the first element of an array of strings, in lower case: a request's command, or
// what a message is. It is empty for everything else.
func word(value []byte) string {
	lines := bytes.SplitN(value, []byte("\r\n"), 4)
	if len(lines) < 4 || len(lines[0]) == 0 || len(lines[1]) == 0 || lines[1][0] != '$' {
		return ""
	}
	return strings.ToLower(string(lines[2]))
}

// subscribes tells whether a request is answered by messages alone.
func subscribes(request []byte) bool {
	return strings.HasSuffix(word(request), "subscribe")
}

// unasked tells whether a reply is a message, which answers no request. In RESP 2, only a
// connection that has subscribed gets messages, as arrays.
func unasked(reply []byte, subscribed bool) bool {
	switch {
	case len(reply) > 0 && reply[0] == '>':
		return true
	case subscribed && len(reply) > 0 && reply[0] == '*':
		kind := word(reply)
		return strings.HasSuffix(kind, "message") || strings.HasSuffix(kind, "subscribe")
	}
	return false
}
