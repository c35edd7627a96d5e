package faultnet

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFramer_cutsAStreamIntoValues(t *testing.T) {
	values := []string{
		"+OK\r\n", "-ERR no\r\n", ":-1\r\n", "$5\r\na\r\nbc\r\n", "$0\r\n\r\n", "$-1\r\n",
		"*-1\r\n", "*0\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
		"_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n", "!5\r\nERR x\r\n", "=7\r\ntxt:abc\r\n",
		"~1\r\n+a\r\n", "%1\r\n+a\r\n%1\r\n+b\r\n:2\r\n", ">2\r\n+a\r\n+b\r\n",
		"|1\r\n+ttl\r\n:9\r\n*1\r\n:1\r\n",
	}
	f := newFramer(iotest.OneByteReader(strings.NewReader(strings.Join(values, ""))), replyKinds)
	for _, want := range values {
		if got, err := f.next(); string(got) != want || err != nil {
			t.Fatalf("next() = %q, %v; want %q", got, err, want)
		}
	}
	if got, err := f.next(); len(got) > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("next() at the end = %q, %v", got, err)
	}
}
