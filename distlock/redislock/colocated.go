package redislock

import (
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Transport implements redisconn.Locks.
func (s *service) Transport() *redisconn.Transport { return s.redis }

// LockKey implements redisconn.Locks.
func (s *service) LockKey(namespace, key string) string {
	return keysOf(driver.Name{Namespace: namespace, Key: key}).lock()
}

// StoreLua implements redisconn.Locks.
func (s *service) StoreLua() string {
	return lua("granted", "unflagged")
}
