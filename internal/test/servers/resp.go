package servers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// replyError is an error that the server replied, as opposed to one of the connection.
type replyError string

func (e replyError) Error() string { return string(e) }

// do sends commands in RESP, the protocol of Redis, over one connection until one fails. It returns
// the reply to the last one.
func do(addr string, timeout time.Duration, commands ...[]string) (reply string, err error) {
	deadline := time.Now().Add(timeout)
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	for _, args := range commands {
		if _, err := io.WriteString(conn, encodeCommand(args)); err != nil {
			return "", err
		}
		if reply, err = readReply(r); err != nil {
			return "", err
		}
	}
	return reply, nil
}

func encodeCommand(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("malformed reply: empty line")
	}
	switch kind, text := line[0], line[1:]; kind {
	case '+', ':':
		return text, nil
	case '-':
		return "", replyError(text)
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", fmt.Errorf("malformed reply: length of a string: %w", err)
		}
		if n < 0 {
			return "", nil
		}
		data := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(r, data); err != nil {
			return "", err
		}
		return string(data[:n]), nil
	case '*':
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", fmt.Errorf("malformed reply: length of an array: %w", err)
		}
		var elements []string
		for range n {
			element, err := readReply(r)
			if err != nil {
				return "", err
			}
			elements = append(elements, element)
		}
		return strings.Join(elements, "\n"), nil
	default:
		return "", fmt.Errorf("malformed reply: %q", line)
	}
}
