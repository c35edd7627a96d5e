//go:build unix

package servers

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// ownGroup keeps a server out of reach of a Ctrl-C in the terminal: it would end in the middle of the work.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// unprivileged starts a process as the user postgres if this one is root.
func unprivileged() (*syscall.SysProcAttr, error) {
	attr := ownGroup()
	uid, gid, err := postgresUser()
	if err == nil && uid != os.Geteuid() {
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return attr, err
}

// giveAway makes the user of unprivileged the owner of a directory.
func giveAway(dir string) error {
	uid, gid, err := postgresUser()
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

// postgresUser returns this process's own user, or postgres in the place of root.
func postgresUser() (uid, gid int, err error) {
	if os.Geteuid() != 0 {
		return os.Geteuid(), os.Getegid(), nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return 0, 0, fmt.Errorf("PostgreSQL refuses to run as root, and its package was not installed: %w", err)
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}
