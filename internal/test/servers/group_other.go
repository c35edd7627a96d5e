//go:build !unix

package servers

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }

func unprivileged() (*syscall.SysProcAttr, error) { return nil, nil }

func giveAway(string) error { return nil }
