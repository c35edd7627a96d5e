//go:build !unix || aix

package postgres

import "net"

// hasInput is not known here.
func hasInput(net.Conn) bool { return false }
