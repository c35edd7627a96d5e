package faultnet_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The operations of all connections are counted. An error of the hook is that of the operation.
func TestDialer_hookBeforeEachOperation(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	broken := errors.New("broken")
	var numbers []int
	dialHooked := faultnet.Dialer(nil, func(n int) error {
		numbers = append(numbers, n)
		if n < 2 {
			return broken
		}
		return nil
	})
	var conns []*conn
	for range 2 {
		nc, err := dialHooked(t.Context(), "tcp", server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := nc.(syscall.Conn); !ok {
			t.Error("the socket is hidden")
		}
		conns = append(conns, wrap(t, nc))
	}
	if _, err := conns[0].Write([]byte(encode("SET", "key", "value"))); !errors.Is(err, broken) {
		t.Errorf("write: %v, want %v", err, broken)
	}
	if _, err := conns[1].Read(make([]byte, 1)); !errors.Is(err, broken) {
		t.Errorf("read: %v, want %v", err, broken)
	}
	conns[0].want("$-1", "GET", "key")
	if want := []int{0, 1, 2, 3}; !slices.Equal(numbers, want) {
		t.Errorf("operations %v, want %v", numbers, want)
	}
}
