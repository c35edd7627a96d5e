package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
)

// claims holds the server that each node has.
type claims struct {
	mu     sync.Mutex
	runIDs map[string]string // by the name of the node
}

// uptime asks with each new connection which server a node is, and since when it is up.
type uptime struct {
	node   string // its name, as host:port
	claims *claims

	mu    sync.Mutex
	runID string    // of the server; empty before the first connection
	since time.Time // the server is up since then, at the latest; of a spare, its first connection
	seen  time.Time // its last answer
}

func (u *uptime) Name() string { return u.node }

func (u *uptime) Up() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runID == "" {
		return 0
	}
	return time.Since(u.since)
}

// onConnect returns what a new connection does first: what the application wants, and greet.
func (u *uptime) onConnect(first func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, c *redis.Conn) error {
		if first != nil {
			if err := first(ctx, c); err != nil {
				return err
			}
		}
		return errors.Join(u.greet(ctx, c)) // ⚑ go-redis unwraps another error, which loses its text
	}
}

// answered notes an answer of the server.
func (u *uptime) answered() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = time.Now()
}

// greet asks the server of a new connection. An error ends the connection before its first call.
func (u *uptime) greet(ctx context.Context, c *redis.Conn) error {
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	runID, up, err := parseInfo(info)
	if err != nil {
		return err
	}
	if err := u.claims.claim(runID, u.node); err != nil {
		return err
	}
	u.note(runID, up, time.Now())
	return nil
}

// claim notes that a node is at the server with this run ID. It fails if another node is there.
func (s *claims) claim(runID, node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, of := range s.runIDs {
		if of == runID && other != node {
			return fmt.Errorf("%w: the nodes %s and %s are one server: give each node a server of its own",
				driver.ErrRefused, other, node)
		}
	}
	if s.runIDs == nil {
		s.runIDs = make(map[string]string)
	}
	s.runIDs[node] = runID
	return nil
}

// note stores an INFO answer; now is when it came. The server with this run ID was up for at least
// this time.
func (u *uptime) note(runID string, up time.Duration, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	start := now.Add(-up)
	switch {
	case u.runID == runID: // ⚑ the first answer counts: the uptime of a spare says nothing about the locks
	case u.runID != "" && start.Before(u.seen):
		// ⚑ Both servers were up at one time. So this one is no restart: it has taken over the
		// address, and does not have the locks of the other one, however long it is up.
		u.since = now
	default:
		u.since = start
	}
	u.runID, u.seen = runID, now
}

// parseInfo reads the reply to INFO server.
//
// ⚑ The server counts whole seconds between two moments that are both rounded, so up to a second of
// its uptime may not have passed.
func parseInfo(info string) (runID string, up time.Duration, err error) {
	seconds := int64(-1)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "run_id":
			runID = value
		case "uptime_in_seconds":
			if seconds, err = strconv.ParseInt(value, 10, 32); err != nil {
				seconds = -1
			}
		}
	}
	if runID == "" || seconds < 0 {
		return "", 0, fmt.Errorf("%w: INFO server shows no run_id and uptime_in_seconds: use Redis itself for "+
			"each node", driver.ErrRefused)
	}
	return runID, max(0, time.Duration(seconds-1)*time.Second), nil
}
