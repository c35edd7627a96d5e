package redislock

import (
	"strings"

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

// HashTag returns the beginning of a lock's keys after their namespace, "{key}:". In a Cluster it
// decides the slot of the keys.
func HashTag(key string) string {
	return string(keysOf(driver.Name{Key: key})[1:])
}

// KeyOf returns the key whose [HashTag] is given. It reports false if no key has it.
func KeyOf(hashTag string) (key string, ok bool) {
	key = unescaper.Replace(strings.TrimSuffix(strings.TrimPrefix(hashTag, "{"), "}:"))
	return key, HashTag(key) == hashTag
}
