package testservers

import (
	"bytes"
	"fmt"
	"os"
)

// stopped tells whether a process is stopped by a signal.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// "pid (name) state …", and the name may hold spaces and brackets.
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return found && bytes.HasPrefix(rest, []byte("T"))
}
