//go:build !unix

package balancer

import (
	"errors"
	"os"
	"os/exec"
)

// CanPause says that this system cannot pause processes.
const CanPause = false

func stop(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }

func prepare(*exec.Cmd) {}
