package services

import (
	"context"
	"fmt"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/redisurl"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

// Servers are those of a memory or of a Runner. Without a URL of their own, the sessions are on the
// server of the locks. The caller of Open calls Leave once, also after an error.
type Servers struct {
	LocksAt, SessionsAt Setting       // no name of SessionsAt: there are no sessions
	Timeout             time.Duration // of the first request to a server
	Locks, Sessions     *Service      // after Open
}

// Setting is a URL, and the name that its setting has in errors.
type Setting struct{ Name, URL string }

// Open enters the servers, and asks that of the locks once.
func (s *Servers) Open(opts distlock.Options) (locker *distlock.Locker, err error) {
	if s.Locks, err = Enter(s.LocksAt.URL); err != nil {
		return nil, fmt.Errorf("%s: %w", s.LocksAt.Name, err)
	}
	s.Sessions = s.Locks
	if s.SessionsAt.URL != "" && s.SessionsAt.URL != s.LocksAt.URL {
		if s.Sessions, err = Enter(s.SessionsAt.URL); err != nil {
			return nil, fmt.Errorf("%s: %w", s.SessionsAt.Name, err)
		}
	}
	backend, apart := s.Sessions.Backend(), s.Sessions != s.Locks
	if s.SessionsAt.Name != "" && (backend == "redlock" || apart && backend == "memory") {
		return nil, codes.Invalid("the backend %q keeps locks alone: name the server of the sessions, such as "+
			"postgres://localhost/chat, with %s", backend, s.SessionsAt.Name)
	}
	if locker, err = s.Locks.Locker(opts); err != nil {
		return nil, err
	}
	err = s.ask(s.LocksAt.Name, func(ctx context.Context) error {
		of := fencing.Options(locker)
		redisurl.WarnOfFailover(ctx, s.LocksAt.URL, of.TTL, of.Logger)
		return locker.Ping(ctx)
	})
	return locker, err
}

// AskSessions asks the server of the sessions once, unless Open has. It asks a PostgreSQL in any case,
// because the sessions have a schema of their own.
func (s *Servers) AskSessions(ping func(context.Context) ([]string, error)) error {
	asked := func(ctx context.Context) error { _, err := ping(ctx); return err }
	switch {
	case s.Sessions != s.Locks:
		return s.ask(s.SessionsAt.Name, asked)
	case s.Locks.Backend() == "postgres":
		return s.ask(s.LocksAt.Name, asked)
	}
	return nil
}

// ask asks the server that a setting names.
func (s *Servers) ask(setting string, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	err := ping(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: no answer within the timeout, which is %s: %w", distlock.ErrUnavailable, s.Timeout, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	return nil
}

// Leave ends the servers in the background that have no other user. The channels send the results.
func (s *Servers) Leave() (ended []<-chan error) {
	if s.Locks != nil {
		ended = append(ended, s.Locks.Leave())
	}
	if s.Sessions != nil && s.Sessions != s.Locks {
		ended = append(ended, s.Sessions.Leave())
	}
	return ended
}

// Health is unhealthy if start fails or takes more than 5 s.
func Health(start func(ctx context.Context) error) core.HealthStatus {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	health := core.HealthStatus{Status: core.HealthHealthy, Timestamp: time.Now()}
	if err := start(ctx); err != nil {
		health.Status, health.Message, health.Timestamp = core.HealthUnhealthy, err.Error(), time.Now()
	}
	return health
}
