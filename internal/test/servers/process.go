package servers

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/internal/test/child"
)

// logTailBytes bounds what a failed test prints of a server's log: the failure above it stays in sight.
const logTailBytes = 1 << 10

// process is one run of a server that the test process started.
type process struct {
	cmd     *exec.Cmd
	logPath string
	logFrom int64         // where this run's output begins in the log
	exited  chan struct{} // closed once the server is gone and reaped
}

// startProcess runs a program in dir, with attr or nil, and appends its output to the log.
func startProcess(path string, args []string, dir, logPath string, attr *syscall.SysProcAttr) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	// The child has its own descriptor once it is started.
	defer log.Close()
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = attr
	p := &process{cmd: cmd, logPath: logPath, logFrom: size, exited: make(chan struct{})}
	err = child.Start(cmd, func() {
		defer close(p.exited)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the process without warning and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.exited
}

// stop asks the process to end, kills it after the grace period and returns
// when it is gone.
func (p *process) stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = child.Continue(p.cmd.Process) // a paused process does not see a SIGTERM
	select {
	case <-p.exited:
	case <-time.After(grace):
		p.kill()
	}
}

// gone tells whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// output returns what this run has logged so far.
func (p *process) output() string {
	return readFrom(p.logPath, p.logFrom)
}

// logTail returns the end of the log, earlier runs included.
func (p *process) logTail() string {
	info, err := os.Stat(p.logPath)
	if err != nil {
		return err.Error()
	}
	return readFrom(p.logPath, max(0, info.Size()-logTailBytes))
}

func readFrom(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, offset, 1<<62))
	if err != nil {
		return err.Error()
	}
	return string(data)
}
