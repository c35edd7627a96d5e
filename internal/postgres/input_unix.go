//go:build unix && !aix

package postgres

import (
	"net"
	"syscall"
)

// hasInput reports whether bytes, or the end of the stream, wait on a connection. It reads none of them.
func hasInput(conn net.Conn) (waits bool) {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	// ⚑ Not Read: a reader of pgx may wait on the connection, after a write that took long.
	_ = raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		waits = err != syscall.EAGAIN
	})
	return waits
}
