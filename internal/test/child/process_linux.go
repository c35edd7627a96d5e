package child

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// State returns the state of a process or thread: Z if it has ended, T if a signal has stopped it. A
// process that is gone has the state 0.
func State(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return stat[bytes.LastIndexByte(stat, ')')+2] // "pid (name) state …", and the name may have any characters
}

// stopped reports whether a signal has stopped a process.
func stopped(pid int) bool { return State(pid) == 'T' }
