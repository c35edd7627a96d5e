//go:build unix

package balancer

import (
	"os"
	"os/exec"
	"syscall"
)

// CanPause says that this system can pause processes.
const CanPause = true

func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// prepare has the system resume, and end, an instance that is paused when the program is killed: it
// does so with what is stopped in a process group that nobody looks after any more.
func prepare(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
