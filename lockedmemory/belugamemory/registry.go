package belugamemory

import (
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

// open makes a memory after its servers have answered: that of the locks and that of the sessions.
func (c *configuration) open() (m *Memory, err error) {
	servers := &services.Servers{LocksAt: services.Setting{Name: "base_url", URL: c.url}, Timeout: c.timeout}
	if c.inner == "" {
		servers.SessionsAt = services.Setting{Name: `the option "store"`, URL: c.storeURL}
	}
	defer func() {
		if err != nil {
			servers.Leave()
		}
	}()
	if c.locker, err = servers.Open(c.lock); err != nil {
		return nil, err
	}
	inner, err := c.memory(servers)
	if err != nil {
		return nil, err
	}
	if m, err = wrap(inner, c.settings); err == nil {
		m.servers = servers
	}
	return m, err
}

// inProcess lists the memories of Beluga 2.13.2 that keep their messages in the process.
var inProcess = []string{"composite", "core", "inmemory", "recall"}
var warnOfProcess sync.Once

// memory makes the memory that is to be locked.
func (c *configuration) memory(servers *services.Servers) (memory.Memory, error) {
	if c.inner == "" {
		kept, err := servers.Sessions.Sessions(c.keep, false)
		if err != nil {
			return nil, err
		}
		store, err := sessionstore.New[schema.Message, schema.Document](kept, c.key, Codec{}, &c.store)
		if err != nil {
			return nil, err
		}
		return store, servers.AskSessions(store.Ping)
	}
	if servers.Locks.Backend() != "memory" && slices.Contains(inProcess, c.inner) {
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
