// Package child starts processes that end with their parent, even if the parent is killed.
//
// [Start] starts any command. [StartRole] starts the running program again, in a role. Parent and
// child exchange JSON values over the child's stdin and stdout. Such a program calls [Serve] first
// in main, or in TestMain:
//
//	child.Serve(map[string]child.Work{"worker": child.Role(work)})
package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Start starts a command that the kernel kills when this process ends, even if this process is
// killed or the command is stopped. Only Linux can do that; elsewhere Start is an ordinary start.
//
// After the start, a goroutine calls run. The function run returns when the command has ended: most
// callers pass cmd.Wait. If Start returns an error, run is not called.
func Start(cmd *exec.Cmd, run func()) error {
	dieWithParent(cmd)
	started := make(chan error)
	go func() {
		// Linux sends the signal when the thread ends that has started the process. The lock keeps
		// that thread for this goroutine, which outlives the process.
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

// pauseTimeout is far more than the kernel takes to stop a process.
const pauseTimeout = 5 * time.Second

// Pause stops a process and returns when the process no longer executes. The signal alone takes
// effect a moment later. Only Linux shows that moment. A process that has ended is an error, and so
// is any process on a system without such signals.
func Pause(p *os.Process, ended <-chan struct{}) error {
	if err := p.Signal(SigStop); err != nil {
		return err
	}
	for deadline := time.Now().Add(pauseTimeout); !stopped(p.Pid); time.Sleep(time.Millisecond) {
		select {
		case <-ended:
			return os.ErrProcessDone
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d still runs %v after SIGSTOP", p.Pid, pauseTimeout)
		}
	}
	return nil
}

// Continue lets a paused process go on.
func Continue(p *os.Process) error { return p.Signal(SigCont) }
