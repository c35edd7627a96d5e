//go:build !unix

package child

import "syscall"

// This system has neither signal. Sending either returns an error.
const (
	sigStop = syscall.Signal(0x13)
	sigCont = syscall.Signal(0x12)
)
