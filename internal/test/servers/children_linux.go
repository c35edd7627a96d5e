package servers

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/belugalock/belugalock/internal/test/child"
)

// childrenOf returns the processes that a process has started, ended ones included until the
// process has noticed.
func childrenOf(pid int) (pids []int) {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for _, field := range bytes.Fields(list) {
		if child, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

func signalAll(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, s)
	}
}

// haveEnded tells whether none of these processes executes any more.
func haveEnded(pids []int) bool { return allIn(pids, "Z") }

// haveStopped tells whether each of these processes has stopped or ended.
func haveStopped(pids []int) bool { return allIn(pids, "TZ") }

// allIn tells whether each process is in one of these states, or is gone.
func allIn(pids []int, states string) bool {
	for _, pid := range pids {
		if state := child.State(pid); state != 0 && strings.IndexByte(states, state) < 0 {
			return false
		}
	}
	return true
}

// removeSharedMemory removes what a killed PostgreSQL leaves in the kernel, where there is room for
// a few thousand.
func removeSharedMemory(id int) { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }

// inMemory returns a directory with room for many databases, which no disk slows down, or "". A new database
// has 300 files.
func inMemory() string {
	const dir, room = "/dev/shm", 4 << 30
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	return dir
}
