//go:build !linux

package campaign

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
