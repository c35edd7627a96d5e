package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/tracing"
)

// Name is what the memory is registered as.
const Name = "locked"

func init() {
	memory.Register(Name, func(cfg config.ProviderConfig) (memory.Memory, error) {
		m, err := New(cfg)
		if err != nil {
			return nil, err // a nil *Memory would be no nil Memory
		}
		return m, nil
	})
}

// New makes the memory that memory.New("locked", cfg) does. BaseURL is the server, as package lockurl writes it, Timeout how long New
// waits for it to answer (default 5 s), and Options are those of the package's documentation. Connections to one URL are shared between
// memories, see [Close]. Spans go to OpenTelemetry's global provider, see package tracing.
//
// What is wrong in cfg, and a server that does not answer, are errors that name the field or option, with the codes
// core.ErrInvalidInput and core.ErrProviderDown.
func New(cfg config.ProviderConfig) (*Memory, error) {
	c, err := parse(cfg)
	if err != nil {
		return nil, coded("belugamemory.new", err)
	}
	s, err := services.enter(c.url)
	if err != nil {
		return nil, coded("belugamemory.new", fmt.Errorf("base_url: %w", err))
	}
	m, err := s.memory(&c)
	if err != nil {
		services.leave(s)
		return nil, coded("belugamemory.new", err)
	}
	return m, nil
}

// Close ends the connections of all memories that [New] and memory.New("locked", …) have made, once the leases that they hold are
// released. The memories fail from then on, with distlock.ErrClosed; new ones open connections of their own. Call it when the process
// ends, so that nobody has to wait for its leases to expire. The sessions of mem:// end with it. If ctx ends first, that is its error; the
// work goes on in the background, and what is not released expires with its TTL.
func Close(ctx context.Context) error { return coded("belugamemory.close", services.close(ctx)) }

// services are those that memories of this process use.
var services = registry{byURL: make(map[string]*service)}

type registry struct {
	mu    sync.Mutex
	byURL map[string]*service
}

// service is one server, or, for mem://, the memory of this process.
type service struct {
	url    string
	client redis.UniversalClient // nil for mem://
	locks  lockdriver.Driver     // of mem://

	memories int // that were made, or are being made; guarded by registry.mu

	mu       sync.Mutex
	closed   bool
	lockers  map[locks]*distlock.Locker
	sessions map[string]sessionsInMemory // of mem://, by namespace
}

type sessionsInMemory struct {
	driver.Driver
	settings driver.Settings
}

// enter returns the service for a URL; each is to be left if no memory comes of it.
func (r *registry) enter(url string) (*service, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.byURL[url]
	if s == nil {
		var err error
		if s, err = newService(url); err != nil {
			return nil, err
		}
		r.byURL[url] = s
	}
	s.memories++
	return s, nil
}

// leave closes a service that no memory uses.
func (r *registry) leave(s *service) {
	r.mu.Lock()
	s.memories--
	last := s.memories == 0 && r.byURL[s.url] == s
	if last {
		delete(r.byURL, s.url)
	}
	r.mu.Unlock()
	if last { // it has nothing to give back, and a server that hangs would keep the caller
		go func() { _ = s.close(context.Background()) }()
	}
}

func (r *registry) close(ctx context.Context) error {
	r.mu.Lock()
	all := r.byURL
	r.byURL = make(map[string]*service)
	r.mu.Unlock()
	return together(maps.Values(all), func(s *service) error { return s.close(ctx) })
}

// together closes all at once: one that hangs must not use up the time of the others.
func together[T any](all iter.Seq[T], close func(T) error) error {
	var (
		mu   sync.Mutex
		errs []error
		wg   sync.WaitGroup
	)
	for each := range all {
		wg.Go(func() {
			err := close(each)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// newService does no I/O.
func newService(url string) (*service, error) {
	s := &service{url: url, lockers: make(map[locks]*distlock.Locker), sessions: make(map[string]sessionsInMemory)}
	// Open knows all that a URL may be, also where there is no client to be had.
	probe, err := lockurl.Open(context.Background(), url, nil)
	if err != nil {
		return nil, err
	}
	if err := probe.Close(context.Background()); err != nil {
		return nil, err
	}
	if strings.HasPrefix(url, "mem://") {
		s.locks = memlock.NewDriver()
		return s, nil
	}
	s.client, err = lockurl.NewRedisClient(url)
	return s, err
}

// memory makes one that uses the service, once that has answered.
func (s *service) memory(c *configuration) (*Memory, error) {
	locker, err := s.locker(c.locks())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	if _, err := locker.Inspect(ctx, "belugamemory"); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: base_url: no answer within the timeout, which is %s: %v", distlock.ErrUnavailable, c.timeout, err)
		}
		return nil, fmt.Errorf("base_url: %w", err) // a refusal, or a wrong password, is an answer
	}
	set := c.settings()
	inner, err := s.inner(c, set.key)
	if err != nil {
		return nil, err
	}
	m, err := wrap(inner, locker, set)
	if err != nil {
		return nil, err
	}
	m.service = s
	return m, nil
}

// locker returns the Locker with the given settings, which all memories with these share.
func (s *service) locker(l locks) (*distlock.Locker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, distlock.ErrClosed
	}
	if locker := s.lockers[l]; locker != nil {
		return locker, nil
	}
	spans, err := tracing.New()
	if err != nil {
		return nil, err
	}
	opts := &distlock.Options{
		Namespace: l.namespace, TTL: l.ttl, Wait: l.wait, Retry: distlock.Retry{Max: l.retryDelay}, MaxHold: l.maxHold, Observer: spans,
	}
	var locker *distlock.Locker
	if s.client == nil {
		locker, err = distlock.New(s.locks, opts)
	} else {
		locker, err = redislock.New(s.client, opts)
	}
	if err == nil {
		s.lockers[l] = locker
	}
	return locker, err
}

func (s *service) inner(c *configuration, key lockedmemory.KeyFunc) (memory.Memory, error) {
	if c.inner != "" {
		m, err := memory.New(c.inner, config.ProviderConfig{Provider: c.inner, Options: c.innerOptions})
		if err != nil {
			return nil, fmt.Errorf("option \"inner\": %w", err)
		}
		return m, nil
	}
	if s.client != nil {
		return redisstore.New[schema.Message, schema.Document](s.client, key, Codec{}, c.store())
	}
	return sessionstore.New[schema.Message, schema.Document](s.inMemory, key, Codec{}, c.store())
}

// inMemory opens the sessions of a namespace in this process. They are kept by the settings of whoever came first.
func (s *service) inMemory(settings driver.Settings) (driver.Driver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, ok := s.sessions[settings.Namespace]
	if !ok {
		kept = sessionsInMemory{memstore.NewDriver(settings), settings}
		s.sessions[settings.Namespace] = kept
	}
	if kept.settings != settings {
		return nil, invalid(`options "max_exchanges" and "idle_ttl" are others than those of a memory before, and mem:// keeps all ` +
			`sessions of a namespace alike: use the same, or another "namespace"`)
	}
	return kept.Driver, nil
}

// close closes the client after the Lockers that use it.
func (s *service) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	lockers := s.lockers
	s.mu.Unlock()
	err := together(maps.Values(lockers), func(l *distlock.Locker) error { return l.Close(ctx) })
	switch {
	case s.client == nil:
		return err
	case ctx.Err() != nil: // without the client, none of their leases could be released any more
		go func() {
			_ = together(maps.Values(lockers), func(l *distlock.Locker) error { return l.Close(context.Background()) })
			_ = s.client.Close()
		}()
		return err
	}
	return errors.Join(err, s.client.Close())
}

// end is the error of a memory's read, which takes no lock and so does not ask the Locker whether that was closed.
func (s *service) end(err error) error {
	if s == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.closed:
		return err
	case err != nil && !errors.Is(err, distlock.ErrClosed):
		return fmt.Errorf("%w: %w", distlock.ErrClosed, err)
	}
	return distlock.ErrClosed
}
