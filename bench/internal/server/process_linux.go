package server

import "syscall"

// ownProcess keeps Ctrl-C in a terminal from the server, which is stopped when nobody needs it any more, and has the kernel
// end it should this program be killed.
func ownProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
