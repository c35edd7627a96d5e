//go:build unix

package child

import "syscall"

// The signals of Pause and Continue.
const (
	SigStop = syscall.SIGSTOP
	SigCont = syscall.SIGCONT
)
