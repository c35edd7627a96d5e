package belugamemory

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/services"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
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
	return m, codes.Of("belugamemory.new", err)
}

// open makes a memory after its services have answered: that of the locks and that of the sessions.
func (c *configuration) open() (m *Memory, err error) {
	s, err := services.Enter(c.url)
	if err != nil {
		return nil, fmt.Errorf("base_url: %w", err)
	}
	used := []*services.Service{s}
	defer func() {
		if err != nil {
			services.Leave(used)
		}
	}()
	sessions := s
	switch {
	case c.storeURL != "":
		if sessions, err = services.Enter(c.storeURL); err != nil {
			return nil, fmt.Errorf(`option "store": %w`, err)
		}
		used = append(used, sessions)
	case c.inner == "" && s.Backend() == services.Quorum:
		return nil, codes.Invalid(`base_url names a quorum, which keeps locks alone: set the option "store" to the server ` +
			`of the sessions, as "postgres://localhost/chat", or "inner" to another memory`)
	}
	if c.locker, err = s.Locker(c.lock); err != nil {
		return nil, err
	}
	err = services.Within(c.timeout, "base_url", func(ctx context.Context) error { return s.Answers(ctx, c.locker.Ping) })
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

// inProcess lists the memories of Beluga 2.13.2 that keep their messages in the process.
var inProcess = []string{"composite", "core", "inmemory", "recall"}
var warnOfProcess sync.Once

// memory makes the memory that is to be locked.
func (c *configuration) memory(locks, sessions *services.Service) (memory.Memory, error) {
	if c.inner == "" {
		kept, err := sessions.Sessions(c.keep)
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
			err = services.Within(c.timeout, `option "store"`, func(ctx context.Context) error {
				return sessions.Answers(ctx, ping)
			})
		case locks.Backend() == "postgres": // where the sessions have a part of the schema of their own
			err = services.Within(c.timeout, "base_url", ping)
		}
		return store, err
	}
	if locks.Backend() != "memory" && slices.Contains(inProcess, c.inner) {
		warnOfProcess.Do(func() {
			slog.Warn(`belugamemory: the inner memory is in this process alone: other instances do not see its `+
				`messages, and a restart loses them; leave option "inner" out to keep messages where the locks are`,
				"inner", c.inner)
		})
	}
	m, err := memory.New(c.inner, config.ProviderConfig{Provider: c.inner, Options: c.innerOptions})
	if err != nil {
		err = fmt.Errorf("option \"inner\": %w", err)
	}
	return m, err
}
