//go:build !linux

package server

import "syscall"

// ownProcess keeps Ctrl-C in a terminal from the server, which is stopped when nobody needs it any more.
func ownProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
