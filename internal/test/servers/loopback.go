package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Listen listens on a free TCP port of 127.0.0.1, below 32768: from there on, Linux numbers
// outgoing connections, which could take the port during a restart, or connect a client to itself.
func Listen() (net.Listener, error) {
	const low, high = 20000, 32768
	var err error
	for range 100 {
		var l net.Listener
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(low+rand.IntN(high-low)))
		if l, err = net.Listen("tcp", addr); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port found between %d and %d: %w", low, high, err)
}
