package belugarunner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// nameless is an agent without an ID.
type nameless struct{ answers }

func (nameless) ID() string { return "" }

// New refuses wrong input, its error names the mistake, and nothing stays open.
func TestNew_refusesWrongInput(t *testing.T) {
	down := servers.StartRedis(t)
	server := servers.SharedServer()
	url := server.URL() + "?client_name=refused"
	open := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: "earlier", IdleTTL: time.Hour})
	down.Kill()
	for name, test := range map[string]struct {
		agent agent.Agent // default: echo
		url   string      // default: that of a Redis
		opts  belugarunner.Options
		text  string
		down  bool
	}{
		"no agent":              {agent: answers(nil), text: "the agent is nil"},
		"a typed nil":           {agent: (*nameless)(nil), text: "the agent is nil"},
		"no ID":                 {agent: nameless{echo}, text: "AgentID"},
		"no URL":                {url: " ", text: "url"},
		"a scheme":              {url: "ftp://localhost", text: "url"},
		"a quorum alone":        {url: "redlock+redis://192.0.2.1,192.0.2.2,192.0.2.3", text: "Store"},
		"a server that is down": {url: down.URL(), text: "url", down: true},
		"a store that is down":  {opts: belugarunner.Options{Store: down.URL()}, text: "Store", down: true},
		"a store's scheme":      {opts: belugarunner.Options{Store: "ftp://localhost"}, text: "Store"},
		"a store in memory":     {opts: belugarunner.Options{Store: "mem://"}, text: "Store"},
		"a nil plugin":          {opts: belugarunner.Options{Plugins: []runtime.Plugin{&hooks{}, nil}}, text: "Plugins"},
		"a typed nil plugin":    {opts: belugarunner.Options{Plugins: []runtime.Plugin{(*hooks)(nil)}}, text: "Plugins"},
		"a service and a store": {text: "leave out SessionService", opts: belugarunner.Options{
			SessionService: runtime.NewInMemorySessionService(), Store: url}},
		"no policy":           {opts: belugarunner.Options{Busy: 7}, text: "Busy"},
		"a typed nil service": {opts: belugarunner.Options{SessionService: (*heedless)(nil)}, text: "SessionService"},
		"no history":          {opts: belugarunner.Options{History: -1}, text: "History"},
		"no hold":             {opts: belugarunner.Options{MaxHold: -1}, text: "MaxHold"},
		"a short TTL":         {opts: belugarunner.Options{TTL: time.Millisecond}, text: "TTL"},
		"a namespace":         {opts: belugarunner.Options{Namespace: "{n}"}, text: "namespace"},
		"a long namespace":    {opts: belugarunner.Options{Namespace: strings.Repeat("n", 125)}, text: "namespace"},
		"a short IdleTTL":     {opts: belugarunner.Options{IdleTTL: 999 * time.Millisecond}, text: "IdleTTL"},
		"a broken IdleTTL":    {opts: belugarunner.Options{IdleTTL: time.Second + 1}, text: "IdleTTL"},
		"of an earlier Runner": {text: "another \"namespace\"",
			opts: belugarunner.Options{Namespace: "earlier", IdleTTL: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.agent == nil {
				test.agent = answers(echo)
			}
			if test.url == "" {
				test.url = url
			}
			r, err := belugarunner.New(test.agent, strings.TrimSpace(test.url), &test.opts)
			code, sentinel := core.ErrInvalidInput, distlock.ErrInvalidOption
			if test.down {
				code, sentinel = core.ErrProviderDown, distlock.ErrUnavailable
			}
			if r != nil {
				t.Errorf("a Runner: %v", r)
			}
			refusedWith(t, err, code, sentinel)
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.text)) || core.IsRetryable(err) != test.down {
				t.Errorf("no %q in: %v", test.text, err)
			}
		})
	}
	_, err := belugarunner.New(nil, url, nil)
	refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
	talk(t, open, "s", "q")
	must(t, open.Shutdown(t.Context()))
	servers.Await(t, 10*time.Second, "all connections are gone", func() bool {
		list, err := server.Do("CLIENT", "LIST")
		return err == nil && !strings.Contains(list, "name=refused")
	})
}

// Options.Store keeps the sessions on a server of their own, and IdleTTL lets them expire there.
func TestStore_serverOfItsOwn(t *testing.T) {
	t.Parallel()
	locks, store := servers.StartRedis(t), servers.StartRedis(t)
	r := newRunner(t, answers(echo), locks.URL(), belugarunner.Options{Store: store.URL(), Namespace: "n", IdleTTL: time.Hour})
	talk(t, r, "s", "q")
	if list, err := locks.Do("KEYS", "*"); err != nil || !strings.Contains(list, "n:{s}") || strings.Contains(list, "run") {
		t.Errorf("the server of the locks has %q, %v", list, err)
	}
	list, err := store.Do("KEYS", "*")
	if err != nil || !strings.Contains(list, "n:run:{s}") {
		t.Errorf("the server of the sessions has %q, %v", list, err)
	}
	for key := range strings.FieldsSeq(list) {
		if ttl, err := store.Do("TTL", key); err != nil || strings.HasPrefix(ttl, "-") {
			t.Errorf("%s expires in %s, %v", key, ttl, err)
		}
	}
	if err := r.Start(t.Context()); err != nil || r.Health().Status != core.HealthHealthy {
		t.Errorf("Start: %v, Health: %+v", err, r.Health())
	}
	store.Kill()
	refusedWith(t, r.Start(t.Context()), core.ErrProviderDown, distlock.ErrUnavailable)
	if health := r.Health(); health.Status != core.HealthUnhealthy || health.Message == "" {
		t.Errorf("Health: %+v", health)
	}
	must(t, r.Stop(t.Context()))
	refusedWith(t, r.Start(t.Context()), belugamemory.ErrShuttingDown, distlock.ErrClosed)
	servers.Await(t, 10*time.Second, "the connections are gone", func() bool {
		list, err := locks.Do("CLIENT", "LIST")
		return err == nil && strings.Count(list, "\n") == 1
	})
}
