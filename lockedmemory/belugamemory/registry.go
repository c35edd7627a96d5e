package belugamemory

import (
	"context"
	"time"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
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
// of one URL share its connections, see [Memory.Close].
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
	servers := &services.Servers{Timeout: c.timeout, LocksAt: services.Setting{Name: "base_url", URL: c.url},
		SessionsAt: services.Setting{Name: `the option "store"`, URL: c.Store}}
	defer func() {
		if err != nil {
			servers.Leave()
		}
	}()
	locker, err := servers.Open(distlock.Options{Namespace: c.Namespace, TTL: time.Duration(c.TTL), Wait: time.Duration(c.Wait),
		MaxHold: time.Duration(c.MaxHold), Interruptible: c.Interruptible, Observer: c.observer})
	if err != nil {
		return nil, err
	}
	kept, err := servers.Sessions.Sessions(sessionstore.Retention{IdleTTL: time.Duration(c.IdleTTL),
		MaxExchanges: c.MaxExchanges}.Beside(c.Namespace), false)
	if err != nil {
		return nil, err
	}
	key := SessionKey
	if c.SessionID != "" { // one session for each tenant
		key = func(ctx context.Context) (string, error) { return SessionKey(core.WithSessionID(ctx, c.SessionID)) }
	}
	store, err := sessionstore.New[schema.Message, schema.Document](kept, key, Codec{}, &sessionstore.Options{Window: c.Window})
	if err != nil {
		return nil, err
	}
	if err := servers.AskSessions(store.Ping); err != nil {
		return nil, err
	}
	m, err = Wrap(store, locker, key,
		&lockedmemory.Options{Wait: time.Duration(c.Wait), Busy: lockedmemory.BusyPolicy(c.Busy)})
	if err == nil {
		m.servers = servers
	}
	return m, err
}
