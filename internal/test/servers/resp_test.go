package servers

import (
	"bufio"
	"errors"
	"strings"
	"testing"
)

func TestReadReply_readsEachKind(t *testing.T) {
	for wire, want := range map[string]string{
		"+OK\r\n":                        "OK",
		":-42\r\n":                       "-42",
		"$5\r\na\r\nbc\r\n":              "a\r\nbc",
		"$0\r\n\r\n":                     "",
		"$-1\r\n":                        "",
		"*-1\r\n":                        "",
		"*0\r\n":                         "",
		"*2\r\n$1\r\na\r\n:7\r\n":        "a\n7",
		"*2\r\n*2\r\n:1\r\n:2\r\n+x\r\n": "1\n2\nx",
	} {
		got, err := readReply(bufio.NewReader(strings.NewReader(wire)))
		if got != want || err != nil {
			t.Errorf("%q: got %q, %v; want %q", wire, got, err, want)
		}
	}
}

func TestReadReply_refusesWhatIsNoReply(t *testing.T) {
	for _, wire := range []string{"", "+cut", "\r\n", "?\r\n", "$x\r\n", "$5\r\nab", "*x\r\n", "*1\r\n"} {
		got, err := readReply(bufio.NewReader(strings.NewReader(wire)))
		var refused replyError
		if err == nil || errors.As(err, &refused) {
			t.Errorf("%q: got %q, %v; want an error of the connection", wire, got, err)
		}
	}
}

func TestDo_carriesAnyBytesBothWays(t *testing.T) {
	r := StartRedis(t)
	value := "a\r\nb\x00c €"
	mustDo(t, r, "OK", "SET", "key", value)
	mustDo(t, r, value, "GET", "key")
	mustDo(t, r, "", "GET", "absent")
	mustDo(t, r, "1\n2\n3", "EVAL", "return {1, '2', {3}}", "0")
	if _, err := r.Do("NO-SUCH-COMMAND"); !errors.As(err, new(replyError)) || !strings.HasPrefix(err.Error(), "ERR unknown command") {
		t.Errorf("unknown command: error %v, want the server's", err)
	}
}
