//go:build !linux

package testservers

import "syscall"

// dieWithParent asks for nothing: there is no portable parent-death signal. The
// server is stopped by the test's cleanup alone.
func dieWithParent() *syscall.SysProcAttr { return nil }

// stopped trusts that the signal was delivered: there is no portable way to ask.
func stopped(int) bool { return true }
