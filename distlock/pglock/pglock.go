package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
)

// Schemes are the URL schemes of [OpenDriver], with a space between them.
const Schemes = postgres.Schemes

// Options configure [New] and [Migrate]. Nil Options, and the zero value of a field, mean the
// defaults.
type Options struct {
	distlock.Options // of the Locker
	// Schema is that of the tables; default "belugalock".
	Schema string
}

func (o *Options) schema(parts ...postgres.Part) postgres.Schema {
	if o == nil {
		o = &Options{}
	}
	return postgres.Schema{Name: o.Schema, Parts: parts}
}

// New makes a Locker whose locks are rows in the database of pool. It connects once: a missing or
// older schema, a missing right and a wrong password fail with distlock.ErrRefused, and a server
// that does not answer fails with distlock.ErrUnavailable. Options out of range fail with
// distlock.ErrInvalidOption. New succeeds on a standby, which may soon be the primary. Until then each
// operation fails with distlock.ErrUnavailable.
//
// The Locker has at most four connections of its own, with the configuration and the hooks of pool,
// so a pool without a free connection delays no call. The caller closes pool after the Locker.
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*distlock.Locker, error) {
	if opts == nil {
		opts = &Options{}
	}
	d, err := NewDriver(ctx, pool, opts)
	if err != nil {
		return nil, err
	}
	locker, err := distlock.New(d, &opts.Options)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return locker, nil
}

// NewDriver makes the driver of [New]. Of opts it uses Schema alone.
func NewDriver(ctx context.Context, pool *pgxpool.Pool, opts *Options) (driver.Driver, error) {
	if pool == nil {
		return nil, postgres.ErrNoPool
	}
	s, err := newService(pool.Config(), opts.schema(lockPart))
	if err != nil {
		return nil, err
	}
	s.source = pool
	if err := s.calls.Ping(ctx); err != nil {
		return nil, errors.Join(postgres.Explain(ctx, err), s.Close())
	}
	return s, nil
}

// OpenDriver makes a driver for the server of a URL, as pgxpool.ParseConfig reads it, with the
// parameter schema for Options.Schema. It does no I/O: the first call reports a missing schema. A URL
// that is not valid fails with distlock.ErrInvalidOption. The error shows no part of a password.
func OpenDriver(rawURL string) (driver.Driver, error) {
	config, name, err := postgres.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: lock URL: %w", distlock.ErrInvalidOption, err)
	}
	return newService(config, postgres.Schema{Name: name, Parts: []postgres.Part{lockPart}})
}

// service is a driver.Driver.
type service struct {
	source *pgxpool.Pool   // given to NewDriver, or nil
	config *pgxpool.Config // to copy
	schema postgres.Schema
	calls  *postgres.Pool
	// held are a connection that listens, and one for renewals, which no other call may delay.
	held  *postgres.Pool
	wakes *wakes
	// lockedRow holds a value while a call waits for a row that another transaction locks.
	lockedRow chan struct{}
	// sweepFrom is the name after which the next page of the sweep begins; nil: no page and no call was
	// made. ⚑ Programs that live for minutes see different pages, because the first call sets it.
	sweepFrom atomic.Pointer[driver.Name]

	mu         sync.Mutex
	companions map[string]*postgres.Pool // by part
}

func newService(config *pgxpool.Config, schema postgres.Schema) (*service, error) {
	s := &service{config: config, schema: schema, lockedRow: make(chan struct{}, 1), companions: make(map[string]*postgres.Pool)}
	var err error
	if s.calls, err = postgres.Open("pglock", config.Copy(), 2, schema); err != nil {
		return nil, err
	}
	if s.held, err = postgres.Open("pglock", config.Copy(), 2, schema); err != nil {
		s.calls.Close()
		return nil, err
	}
	s.wakes = newWakes(s)
	s.wakes.running.Go(func() { s.sweep(s.wakes.ctx) })
	return s, nil
}

func (s *service) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "postgres", AcrossProcesses: true, Queues: true}
}

// Close closes the service's own connections. The caller's pool stays open.
func (s *service) Close() error {
	s.wakes.close()
	s.calls.Close()
	s.held.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, companion := range s.companions {
		companion.Close()
	}
	return nil
}
