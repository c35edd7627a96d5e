package faultnet_test

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestDialer_countsTheOperationsOfAllConnections(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	var numbers []int
	dialHooked := faultnet.Dialer(nil, func(n int) error {
		numbers = append(numbers, n)
		return nil
	})
	for range 2 {
		nc, err := dialHooked(t.Context(), "tcp", server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		wrap(t, nc).want("+PONG", "PING")
		if _, ok := nc.(syscall.Conn); !ok {
			t.Error("the socket is hidden")
		}
	}
	if want := []int{0, 1, 2, 3}; !slices.Equal(numbers, want) {
		t.Errorf("operations %v, want %v", numbers, want)
	}
}

func TestDialer_anErrorOfTheHookIsTheOperations(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	broken := errors.New("broken")
	dialHooked := faultnet.Dialer(new(net.Dialer).DialContext, func(n int) error {
		if n < 2 {
			return broken
		}
		return nil
	})
	nc, err := dialHooked(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c := wrap(t, nc)
	if _, err := c.Write([]byte(encode("SET", "key", "value"))); !errors.Is(err, broken) {
		t.Errorf("write: %v, want %v", err, broken)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, broken) {
		t.Errorf("read: %v, want %v", err, broken)
	}
	c.want("$-1", "GET", "key")
}
