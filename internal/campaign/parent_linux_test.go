package campaign

import "syscall"

// dieWithParent has the kernel kill a child when the thread that has started it ends: one that is stopped would stay for ever.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
