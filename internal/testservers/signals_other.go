//go:build !unix

package testservers

import "syscall"

// These systems have no such signals: sending one returns an error, which Pause
// and Resume report.
const (
	sigStop = syscall.Signal(0x13)
	sigCont = syscall.Signal(0x12)
)

func ownGroup() *syscall.SysProcAttr { return nil }
