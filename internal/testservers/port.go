package testservers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// freePort returns a loopback port that nothing listened on a moment ago.
//
// It stays below 32768, where Linux begins to number outgoing connections. A
// port from that range can be taken by one while the server is down for a
// restart; a client that keeps dialling it can even connect to itself.
func freePort() (int, error) {
	const low, high = 20000, 32768
	var err error
	for range 100 {
		port := low + rand.IntN(high-low)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d: %w", low, high, err)
}
