package wire

import (
	"fmt"
	"strings"
	"testing"
)

func request(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

var streams = []struct {
	name   string
	stream string
	want   int
}{
	{"nothing", "", 0},
	{"one request", request("PING"), 1},
	{"a pipeline", request("GET", "k") + request("SET", "k", "v") + request("PING"), 3},
	{"a payload that looks like requests", request("SET", "k", request("GET", "k")+request("PING")), 1},
	{"a payload of line ends", request("SET", "k", "\r\n*1\r\n\r\n*1\r\n"), 1},
	{"an empty payload", request("SET", "", ""), 1},
	{"a long payload", request("EVALSHA", strings.Repeat("*1\r\n$4\r\nPING\r\n", 1000)), 1},
	{"setting up", request("HELLO", "3") + request("CLIENT", "SETINFO", "LIB-NAME", "x") + request("client", "maint_notifications", "on") +
		request("AUTH", "p") + request("select", "1") + request("CLIENT", "TRACKING", "ON"), 0},
	{"set up, then work", request("HELLO", "3") + request("EVALSHA", "x", "0") + request("SUBSCRIBE", "c"), 2},
	{"part of the work, though CLIENT", request("CLIENT", "CACHING", "YES"), 1},
	{"a key named like a set-up", request("GET", "HELLO"), 1},
	{"a name with a set-up at its start", request("SELECTED", "1") + request("CLIENTS", "x"), 2},
	{"inline commands", "PING\r\nGET k\r\nHELLO 3\r\n", 2},
	{"an unfinished request", request("PING") + "*2\r\n$3\r\nGET\r\n$5\r\nab", 1},
	{"an empty array", "*0\r\n" + request("PING"), 1},
}

func TestScanner_countsRequests(t *testing.T) {
	for _, c := range streams {
		if got := new(scanner).scan([]byte(c.stream)); got != c.want {
			t.Errorf("%s: %d commands, want %d", c.name, got, c.want)
		}
	}
}

func TestScanner_countsTheSameHoweverTheStreamIsSplit(t *testing.T) {
	for _, c := range streams {
		for size := 1; size <= min(len(c.stream), 40); size++ {
			var s scanner
			got := 0
			for rest := []byte(c.stream); len(rest) > 0; {
				n := min(size, len(rest))
				got += s.scan(rest[:n])
				rest = rest[n:]
			}
			if got != c.want {
				t.Errorf("%s, in pieces of %d bytes: %d commands, want %d", c.name, size, got, c.want)
			}
		}
	}
}
