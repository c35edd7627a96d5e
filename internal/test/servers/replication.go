package servers

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Detach closes a master's links to its replicas until its restart. Nothing that the master
// acknowledges from then on reaches a replica, and all of it is lost if a replica takes over.
//
// Sentinel and Cluster would undo a REPLICAOF, and paused replicas would still read their sockets
// when they are resumed. Sentinel promotes no replica that had lost its master for 10 seconds.
func (r *Redis) Detach() {
	r.tb.Helper()
	for _, command := range []string{
		"ACL SETUSER default -psync -sync", // first, or the replicas are back before it
		"CLIENT KILL TYPE replica",
	} {
		if _, err := r.Do(strings.Fields(command)...); err != nil {
			r.tb.Errorf("detach the replicas of %s: %s: %v", r.Addr(), command, err)
		}
	}
}

// field returns the value of one line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// writable returns nil if the server executes writes to key. It changes nothing.
func (r *Redis) writable(key string) error {
	_, err := r.probe("HDEL", key, "servers:absent")
	if err != nil && !strings.Contains(err.Error(), "WRONGTYPE") { // which means that it would have
		return fmt.Errorf("it does not take a write: %w", err)
	}
	return nil
}

// follows returns nil if r is a replica of master and has, at least, what master had when its
// replication offset was the one given.
func (r *Redis) follows(master *Redis, offset int64) error {
	info, err := r.probe("INFO", "replication")
	switch {
	case err != nil:
		return err
	case field(info, "role") != "slave" || field(info, "master_port") != strconv.Itoa(master.port):
		return fmt.Errorf("%s is no replica of %s: role %q, master port %q",
			r.Addr(), master.Addr(), field(info, "role"), field(info, "master_port"))
	case field(info, "master_link_status") != "up":
		return fmt.Errorf("replica %s has no link to its master %s", r.Addr(), master.Addr())
	}
	has, err := strconv.ParseInt(field(info, "slave_repl_offset"), 10, 64)
	if err != nil || has < offset {
		return fmt.Errorf("replica %s is at offset %d, its master %s at %d or later", r.Addr(), has, master.Addr(), offset)
	}
	return nil
}

// followed returns nil if the server is a master that sees these replicas online, and they have all
// that it had at the time of the call.
func (r *Redis) followed(replicas ...*Redis) error {
	info, err := r.probe("INFO", "replication")
	if err != nil {
		return err
	}
	if role := field(info, "role"); role != "master" {
		return fmt.Errorf("%s is no master: role %q", r.Addr(), role)
	}
	offset, err := strconv.ParseInt(field(info, "master_repl_offset"), 10, 64)
	if err != nil {
		return fmt.Errorf("replication offset of %s: %w", r.Addr(), err)
	}
	if online := strings.Count(info, "state=online"); online < len(replicas) {
		return fmt.Errorf("master %s has %d of %d replicas online", r.Addr(), online, len(replicas))
	}
	var errs []error
	for _, replica := range replicas {
		errs = append(errs, replica.follows(r, offset))
	}
	return errors.Join(errs...)
}
