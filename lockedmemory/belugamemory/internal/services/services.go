// Package services holds the servers that the memories and Runners of this process share, by URL.
package services

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// services holds those of this process, by URL.
var services = struct {
	sync.Mutex
	byURL map[string]*Service
}{byURL: make(map[string]*Service)}

// Service is one server, or this process for mem://.
type Service struct {
	url   string
	locks driver.Shared

	// Guarded by services:
	users    int // memories and Runners that use the service or wait for its answer
	lockers  map[distlock.Options]*distlock.Locker
	sessions map[string]storedriver.Driver // that callers share, by namespace
}

// Backend names the backend of the locks.
func (s *Service) Backend() string { return s.locks.Capabilities().Backend }

// Enter returns the service for a URL. Each caller calls Leave once.
func Enter(url string) (*Service, error) {
	services.Lock()
	defer services.Unlock()
	s := services.byURL[url]
	if s == nil {
		locks, err := lockurl.OpenDriver(url)
		if err != nil {
			return nil, err
		}
		s = &Service{url: url, locks: driver.Shared{Driver: locks}, lockers: make(map[distlock.Options]*distlock.Locker),
			sessions: make(map[string]storedriver.Driver)}
		services.byURL[url] = s
	}
	s.users++
	return s, nil
}

// Leave ends the service in the background if it has no other user, and sends the result.
func (s *Service) Leave() (ended <-chan error) {
	services.Lock()
	defer services.Unlock()
	result := make(chan error, 1)
	if s.users--; s.users > 0 {
		result <- nil
		return result
	}
	delete(services.byURL, s.url)
	go func() {
		var err error
		for _, locker := range s.lockers {
			err = errors.Join(err, locker.Close(context.Background()))
		}
		result <- errors.Join(err, s.locks.Driver.Close()) // last, because the Lockers release their leases
	}()
	return result
}

// Locker returns the Locker for opts. All users with equal options share it.
func (s *Service) Locker(opts distlock.Options) (*distlock.Locker, error) {
	if opts.Observer != nil && !reflect.TypeOf(opts.Observer).Comparable() {
		return nil, codes.Invalid("the Observer is a %T, and users of a server share a Locker by comparison: "+
			"give a pointer", opts.Observer)
	}
	services.Lock()
	defer services.Unlock()
	if locker := s.lockers[opts]; locker != nil {
		return locker, nil
	}
	locker, err := distlock.New(s.locks, &opts)
	if err == nil {
		s.lockers[opts] = locker
	}
	return locker, err
}

// Sessions returns the sessions of a namespace. With shared, all callers of a namespace get one driver,
// and need the same retention. mem:// is always shared.
func (s *Service) Sessions(keep storedriver.Retention, shared bool) (made storedriver.Driver, err error) {
	switch s.Backend() {
	case "redis":
		made, err = redisstore.NewColocatedDriver(s.locks.Driver, &keep)
	case "postgres":
		made, err = pgstore.NewColocatedDriver(s.locks.Driver, &keep)
	default:
		shared = true
		made, err = memstore.NewDriver(&keep)
	}
	if err != nil || !shared {
		return made, err
	}
	services.Lock()
	defer services.Unlock()
	first := s.sessions[keep.Namespace]
	if first == nil {
		s.sessions[keep.Namespace] = made
		return made, nil
	}
	if first.Retention() != made.Retention() {
		return nil, codes.Invalid(`"idle_ttl", "max_exchanges", Options.IdleTTL or MaxTurns differs from that of an earlier memory or Runner ` +
			`of this process with the same namespace: use the same, or another "namespace" or Options.Namespace`)
	}
	return first, nil
}
