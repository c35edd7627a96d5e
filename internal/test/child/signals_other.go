//go:build !unix

package child

import "syscall"

// This system has neither signal. Sending either returns an error.
const (
	SigStop = syscall.Signal(0x13)
	SigCont = syscall.Signal(0x12)
)
