package redislock

import (
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock/driver"
)

// foreign is the error for data that another program has put in the place of a lock.
func foreign(cause error) error {
	return fmt.Errorf("redislock: %w: choose another Namespace, or remove the Redis key: %w", driver.ErrForeign, cause)
}

// errReply has no kind: the script has run, but the reply does not show its result.
var errReply = errors.New("redislock: Redis returned a reply in an unknown format: " +
	"use one version of this library in all processes, and no proxy that changes replies")
