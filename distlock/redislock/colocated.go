package redislock

import (
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Transport implements redisconn.Locks.
func (d *lockDriver) Transport() *redisconn.Transport { return d.transport }

// LockKey implements redisconn.Locks.
func (d *lockDriver) LockKey(namespace, key string) string {
	return keysOf(driver.Name{Namespace: namespace, Key: key}).lock()
}

// StoreLua implements redisconn.Locks.
func (d *lockDriver) StoreLua() string {
	return lua("granted", "unflagged")
}
