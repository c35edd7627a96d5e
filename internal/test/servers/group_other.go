//go:build !unix

package servers

import "syscall"

const (
	sigStop = syscall.SIGKILL // there is no such signal
	sigCont = syscall.SIGKILL
)

func ownGroup() *syscall.SysProcAttr { return nil }

func unprivileged() (*syscall.SysProcAttr, error) { return nil, nil }

func giveAway(string) error { return nil }
