// Package childproc starts processes that end with the one that has started them, however that ends.
package childproc

import (
	"os/exec"
	"runtime"
)

// Start starts a command that the kernel kills when this process ends, even if this process is killed, or the command's is stopped.
// Only Linux can do that; elsewhere it is an ordinary start.
//
// When it has started, run is called in a goroutine. It has to return, and not before the command has ended: mostly it is a call of
// cmd.Wait. If Start returns an error, run is not called.
func Start(cmd *exec.Cmd, run func()) error {
	dieWithParent(cmd)
	started := make(chan error)
	go func() {
		// Linux sends the signal when the thread ends that has started the process. The lock keeps that thread for this goroutine,
		// which outlives the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			run()
		}
	}()
	return <-started
}
