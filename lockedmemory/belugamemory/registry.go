package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/tracing"
)

// Name is the registered name of the memory.
const Name = "locked"

func init() {
	memory.Register(Name, func(cfg config.ProviderConfig) (memory.Memory, error) {
		m, err := New(cfg)
		if err != nil {
			return nil, err // a nil *Memory is not a nil memory.Memory
		}
		return m, nil
	})
}

// New makes the same memory as memory.New("locked", cfg), see the package's documentation. Memories
// of one URL share its connections, see [Memory.Close]. Spans go to OpenTelemetry's global
// provider, see package tracing.
//
// Wrong fields and options fail with core.ErrInvalidInput. A server that refuses the connection or
// does not answer fails with core.ErrProviderDown.
func New(cfg config.ProviderConfig) (m *Memory, err error) {
	c, err := parse(cfg)
	if err == nil {
		m, err = c.open()
	}
	return m, coded("belugamemory.new", err)
}

// open makes a memory after its services have answered: that of the locks and that of the sessions.
func (c *configuration) open() (m *Memory, err error) {
	s, err := enter(c.url)
	if err != nil {
		return nil, fmt.Errorf("base_url: %w", err)
	}
	used := []*service{s}
	defer func() {
		if err != nil {
			leave(used)
		}
	}()
	sessions := s
	switch {
	case c.storeURL != "":
		if sessions, err = enter(c.storeURL); err != nil {
			return nil, fmt.Errorf(`option "store": %w`, err)
		}
		used = append(used, sessions)
	case c.inner == "" && s.backend() == quorum:
		return nil, invalid(`base_url names a quorum, which keeps locks alone: set the option "store" to the server ` +
			`of the sessions, as "postgres://localhost/chat", or "inner" to another memory`)
	}
	if c.locker, err = s.lockerOf(c.lock); err != nil {
		return nil, err
	}
	err = c.within("base_url", func(ctx context.Context) error { return s.answers(ctx, c.locker.Ping) })
	if err != nil {
		return nil, err
	}
	inner, err := c.memory(s, sessions)
	if err != nil {
		return nil, err
	}
	if m, err = wrap(inner, c.settings); err == nil {
		m.services = used
	}
	return m, err
}

// quorum is the backend of the locks of package redlock.
const quorum = "redlock"

// services holds the services of all memories of this process, by URL.
var services = struct {
	sync.Mutex
	byURL map[string]*service
}{byURL: make(map[string]*service)}

// service is one server, or this process for mem://.
type service struct {
	url   string
	locks shared

	// Guarded by services:
	memories int // memories that use the service or wait for its answer
	lockers  map[distlock.Options]*distlock.Locker
	sessions map[string]driver.Driver // in this process, by namespace
}

// shared is the driver of several Lockers. Their service closes it.
type shared struct{ lockdriver.Driver }

func (shared) Close() error                { return nil }
func (s shared) Unwrap() lockdriver.Driver { return s.Driver }

func (s *service) backend() string { return s.locks.Capabilities().Backend }

// enter returns the service for a URL. Each caller calls leave once.
func enter(url string) (*service, error) {
	services.Lock()
	defer services.Unlock()
	s := services.byURL[url]
	if s == nil {
		locks, err := lockurl.OpenDriver(url)
		if err != nil {
			return nil, err
		}
		s = &service{url: url, locks: shared{locks}, lockers: make(map[distlock.Options]*distlock.Locker),
			sessions: make(map[string]driver.Driver)}
		services.byURL[url] = s
	}
	s.memories++
	return s, nil
}

// leave ends the services in the background that no other memory uses. The channels send the results.
func leave(services []*service) (ended []<-chan error) {
	for _, s := range services {
		ended = append(ended, s.leave())
	}
	return ended
}

// leave ends the service in the background if no other memory uses it, and sends the result.
func (s *service) leave() (ended <-chan error) {
	services.Lock()
	defer services.Unlock()
	result := make(chan error, 1)
	if s.memories--; s.memories > 0 {
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

// answers connects to the server and sends one request.
func (s *service) answers(ctx context.Context, ping func(context.Context) error) error {
	// go-redis dials up to 20 times before it returns a refusal. In a Cluster, single nodes may
	// refuse. With TLS the dialer ignores ctx.
	if client, ok := redisClient(s.locks.Driver); ok && client.Options().TLSConfig == nil {
		conn, err := client.Options().Dialer(ctx, client.Options().Network, client.Options().Addr)
		if err != nil {
			return fmt.Errorf("%w: %w; start the server, or correct its address", distlock.ErrUnavailable, err)
		}
		_ = conn.Close()
	}
	return ping(ctx)
}

// within runs a request of New to the server that a setting names.
func (c *configuration) within(setting string, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	err := request(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: no answer within the timeout, which is %s: %w", distlock.ErrUnavailable, c.timeout, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	return nil
}

// redisClient returns the client of a single Redis.
func redisClient(locks lockdriver.Driver) (client *redis.Client, ok bool) {
	if transport := redislock.TransportOf(locks); transport != nil {
		client, ok = transport.Client().(*redis.Client)
	}
	return client, ok
}

// lockerOf returns the Locker for opts. All memories with equal options share it.
func (s *service) lockerOf(opts distlock.Options) (*distlock.Locker, error) {
	services.Lock()
	defer services.Unlock()
	if locker := s.lockers[opts]; locker != nil {
		return locker, nil
	}
	spans, err := tracing.New()
	if err != nil {
		return nil, err
	}
	observed := opts
	observed.Observer = spans
	locker, err := distlock.New(s.locks, &observed)
	if err == nil {
		s.lockers[opts] = locker
	}
	return locker, err
}

// inProcess lists the memories of Beluga 2.13.2 that keep their messages in the process.
var inProcess = []string{"composite", "core", "inmemory", "recall"}
var warnOfProcess sync.Once

// memory makes the memory that is to be locked.
func (c *configuration) memory(locks, sessions *service) (memory.Memory, error) {
	if c.inner == "" {
		kept, err := sessions.sessionsOf(c.keep)
		if err != nil {
			return nil, err
		}
		store, err := sessionstore.New[schema.Message, schema.Document](kept, c.key, Codec{}, &c.store)
		ping := func(ctx context.Context) error {
			_, err := store.Ping(ctx)
			return err
		}
		switch {
		case err != nil:
		case sessions != locks:
			err = c.within(`option "store"`, func(ctx context.Context) error { return sessions.answers(ctx, ping) })
		case locks.backend() == "postgres": // where the sessions have a part of the schema of their own
			err = c.within("base_url", ping)
		}
		return store, err
	}
	if locks.backend() != "memory" && slices.Contains(inProcess, c.inner) {
		warnOfProcess.Do(func() {
			slog.Warn(`belugamemory: the inner memory is in this process alone: other instances do not see its `+
				`messages, and a restart loses them; leave option "inner" out to keep messages where the locks are`, "inner", c.inner)
		})
	}
	m, err := memory.New(c.inner, config.ProviderConfig{Provider: c.inner, Options: c.innerOptions})
	if err != nil {
		err = fmt.Errorf("option \"inner\": %w", err)
	}
	return m, err
}

// sessionsOf returns the sessions of a namespace. In this process, the first memory sets the retention.
func (s *service) sessionsOf(keep driver.Retention) (driver.Driver, error) {
	switch s.backend() {
	case "redis":
		return redisstore.NewColocatedDriver(s.locks.Driver, &keep)
	case "postgres":
		return pgstore.NewColocatedDriver(s.locks.Driver, &keep)
	}
	services.Lock()
	defer services.Unlock()
	made, err := memstore.NewDriver(&keep)
	if err != nil {
		return nil, err
	}
	if s.sessions[keep.Namespace] == nil {
		s.sessions[keep.Namespace] = made
	}
	sessions := s.sessions[keep.Namespace]
	if sessions.Retention() != made.Retention() {
		return nil, invalid(`options "max_exchanges" and "idle_ttl" differ from those of an earlier memory on mem://: ` +
			`use the same, or another "namespace"`)
	}
	return sessions, nil
}
