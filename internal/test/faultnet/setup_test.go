package faultnet_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// silence is how long a test listens before it takes silence for granted.
const silence = 100 * time.Millisecond

// conn is a connection to Redis at its plainest, whose errors are for the test to judge.
type conn struct {
	t *testing.T
	net.Conn
	replies *bufio.Reader
}

func dial(t *testing.T, addr string) *conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return wrap(t, c)
}

func wrap(t *testing.T, c net.Conn) *conn {
	t.Cleanup(func() { c.Close() })
	return &conn{t, c, bufio.NewReader(c)}
}

// proxied returns a server and a proxy in front of it.
func proxied(t *testing.T) (*servers.Redis, *faultnet.Proxy) {
	t.Helper()
	server := servers.StartRedis(t)
	return server, faultnet.New(t, server.Addr())
}

func (c *conn) write(data string) {
	c.t.Helper()
	if _, err := io.WriteString(c, data); err != nil {
		c.t.Fatalf("write %q: %v", data, err)
	}
}

// send writes one command.
func (c *conn) send(args ...string) {
	c.t.Helper()
	c.write(encode(args...))
}

// read returns the next line of a reply.
func (c *conn) read(timeout time.Duration) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	line, err := c.replies.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

func (c *conn) wantLines(lines ...string) {
	c.t.Helper()
	for _, want := range lines {
		if got, err := c.read(5 * time.Second); got != want || err != nil {
			c.t.Fatalf("reply: %q, %v; want %q", got, err, want)
		}
	}
}

// want sends a command and demands the lines of its reply.
func (c *conn) want(lines string, args ...string) {
	c.t.Helper()
	c.send(args...)
	c.wantLines(strings.Split(lines, " ")...)
}

func (c *conn) wantSilence() {
	c.t.Helper()
	if line, err := c.read(silence); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read: %q, %v; want nothing within %v", line, err, silence)
	}
}

func (c *conn) wantReset() {
	c.t.Helper()
	if line, err := c.read(5 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("read: %q, %v; want a reset", line, err)
	}
}

func encode(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// mustDo asks the server itself.
func mustDo(t *testing.T, server *servers.Redis, want string, args ...string) {
	t.Helper()
	if got, err := server.Do(args...); got != want || err != nil {
		t.Fatalf("%v: %q, %v; want %q", args, got, err, want)
	}
}
