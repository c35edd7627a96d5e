//go:build unix

package childproc

import "syscall"

// CanPause reports whether Pause works on this system.
const CanPause = true

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)
