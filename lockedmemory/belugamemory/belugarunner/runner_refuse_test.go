package belugarunner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/services"
)

// called is an agent with another ID.
type called struct {
	answers
	id func() string
}

func (c called) ID() string { return c.id() }

// New refuses wrong input, its error names the mistake, and nothing stays open.
func TestNew_refusesWrongInput(t *testing.T) {
	down := testservers.StartRedis(t)
	url := testservers.SharedServer().URL()
	open := newRunner(t, answers(echo), url, belugarunner.WithNamespace("earlier"), belugarunner.WithIdleTTL(time.Hour))
	users := services.Users(url)
	down.Kill()
	type opts = []belugarunner.Option
	for name, test := range map[string]struct {
		agent agent.Agent
		url   string // empty: that of a Redis
		opts  opts
		text  string
		down  bool
	}{
		"no agent":              {agent: nil, text: "the agent is nil"},
		"a typed nil":           {agent: (*called)(nil), text: "the agent is nil"},
		"a nil function":        {agent: answers(nil), text: "the agent is nil"},
		"no ID":                 {agent: called{echo, func() string { return "" }}, text: "WithAgentID"},
		"no URL":                {agent: answers(echo), url: " ", text: "url"},
		"a scheme":              {agent: answers(echo), url: "ftp://localhost", text: "url"},
		"a quorum alone":        {agent: answers(echo), url: "redlock+redis://192.0.2.1,192.0.2.2,192.0.2.3", text: "WithStore"},
		"a server that is down": {agent: answers(echo), url: down.URL(), text: "url", down: true},
		"a store that is down": {agent: answers(echo), opts: opts{belugarunner.WithStore(down.URL())},
			text: "WithStore", down: true},
		"a store's scheme":   {agent: answers(echo), opts: opts{belugarunner.WithStore("ftp://localhost")}, text: "WithStore"},
		"a store in memory":  {agent: answers(echo), opts: opts{belugarunner.WithStore("mem://")}, text: "WithStore"},
		"no store":           {agent: answers(echo), opts: opts{belugarunner.WithStore("")}, text: "WithStore"},
		"a nil option":       {agent: answers(echo), opts: opts{nil}, text: "an Option is nil"},
		"a nil plugin":       {agent: answers(echo), opts: opts{belugarunner.WithPlugins(&hooks{}, nil)}, text: "WithPlugins"},
		"a typed nil plugin": {agent: answers(echo), opts: opts{belugarunner.WithPlugins((*hooks)(nil))}, text: "WithPlugins"},
		"a nil service":      {agent: answers(echo), opts: opts{belugarunner.WithSessionService(nil)}, text: "WithSessionService"},
		"a service and a store": {agent: answers(echo), text: "leave out WithSessionService", opts: opts{
			belugarunner.WithSessionService(runtime.NewInMemorySessionService()), belugarunner.WithStore(url)}},
		"no wait":          {agent: answers(echo), opts: opts{belugarunner.WithWait(0)}, text: "WithWait"},
		"no policy":        {agent: answers(echo), opts: opts{belugarunner.WithBusy(7)}, text: "WithBusy"},
		"no hold":          {agent: answers(echo), opts: opts{belugarunner.WithMaxHold(0)}, text: "WithMaxHold"},
		"a short TTL":      {agent: answers(echo), opts: opts{belugarunner.WithTTL(time.Millisecond)}, text: "WithTTL"},
		"no namespace":     {agent: answers(echo), opts: opts{belugarunner.WithNamespace("")}, text: "WithNamespace"},
		"a namespace":      {agent: answers(echo), opts: opts{belugarunner.WithNamespace("{n}")}, text: "namespace"},
		"a long namespace": {agent: answers(echo), opts: opts{belugarunner.WithNamespace(strings.Repeat("n", 125))}, text: "namespace"},
		"a short IdleTTL":  {agent: answers(echo), opts: opts{belugarunner.WithIdleTTL(999 * time.Millisecond)}, text: "WithIdleTTL"},
		"a broken IdleTTL": {agent: answers(echo), opts: opts{belugarunner.WithIdleTTL(time.Second + 1)}, text: "IdleTTL"},
		"no agent ID":      {agent: answers(echo), opts: opts{belugarunner.WithAgentID("")}, text: "WithAgentID"},
		"of an earlier Runner": {agent: answers(echo), text: "another WithNamespace",
			opts: opts{belugarunner.WithNamespace("earlier"), belugarunner.WithIdleTTL(time.Minute)}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.url == "" {
				test.url = url
			}
			r, err := belugarunner.New(test.agent, strings.TrimSpace(test.url), test.opts...)
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
			if got := services.Users(url); got != users || services.Users(down.URL()) != 0 {
				t.Errorf("%d users of the server are left, want %d; of the dead one %d", got, users, services.Users(down.URL()))
			}
		})
	}
	if answer, errs := say(t.Context(), open, "s", "q"); answer != "answer to q" || errs != nil {
		t.Errorf("the open Runner: %q, %v", answer, errs)
	}
}

// A panic of New, here of the agent, leaves nothing open.
func TestNew_panic_leavesNothing(t *testing.T) {
	url := testservers.SharedServer().URL()
	users := services.Users(url)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = belugarunner.New(called{echo, func() string { panic("no ID") }}, url)
	}()
	if got := services.Users(url); got != users {
		t.Errorf("%d users of the server, want %d", got, users)
	}
}

// New reads the ID of the agent. Sessions keep it.
func TestNew_readsTheID(t *testing.T) {
	onMem(t, func(t *testing.T) {
		n := 0
		r := newRunner(t, called{echo, func() string { n++; return strings.Repeat("x", n) }}, "mem://")
		for range 2 {
			if answer, errs := say(t.Context(), r, "s", "q"); answer != "answer to q" || errs != nil {
				t.Errorf("%q, %v", answer, errs)
			}
		}
		stored, err := r.Sessions().Get(t.Context(), "s")
		if err != nil || stored.AgentID != "x" {
			t.Errorf("%+v, %v", stored, err)
		}
	})
}

// WithStore keeps the sessions on a server of their own, and WithIdleTTL lets them expire there.
func TestWithStore_serverOfItsOwn(t *testing.T) {
	t.Parallel()
	locks, store := testservers.StartRedis(t), testservers.StartRedis(t)
	r := newRunner(t, answers(echo), locks.URL(), belugarunner.WithStore(store.URL()),
		belugarunner.WithNamespace("n"), belugarunner.WithIdleTTL(time.Hour))
	if answer, errs := say(t.Context(), r, "s", "q"); answer != "answer to q" || errs != nil {
		t.Errorf("%q, %v", answer, errs)
	}
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
	if users := services.Users(locks.URL()) + services.Users(store.URL()); users != 0 {
		t.Errorf("%d users are left", users)
	}
}
