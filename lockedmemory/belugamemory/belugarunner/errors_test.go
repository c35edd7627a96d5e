package belugarunner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// A run that waits for a session does not create it anew: its reader expects a history.
func TestErrors_deletedWhileWaiting_notFound(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		r := newRunner(t, answers(echo), url)
		other := newRunner(t, answers(echo), url, belugarunner.Options{TTL: 20 * time.Second}) // not the Locker
		ctx := core.WithSessionID(t.Context(), "s")
		run := func() []error { return []error{second(say(t, t.Context(), other, "s", "q"))} }
		calls := func() (errs []error) {
			err := other.Locker().Do(ctx, "s", func(ctx context.Context) error {
				errs = []error{second(other.Sessions().Get(ctx, "s")), second(other.Sessions().Create(ctx, "agent")),
					other.Sessions().Delete(ctx, "s")}
				return nil
			})
			if err != nil {
				errs = append(errs, err)
			}
			return errs
		}
		for _, call := range []func() []error{run, calls} {
			talk(t, r, "s", "hi")
			errs := make(chan []error, 1)
			must(t, r.Locker().Do(ctx, "s", func(ctx context.Context) error {
				go func() { errs <- call() }()
				servers.Await(t, 5*time.Second, "the call waits", func() bool {
					info, err := r.Locker().Inspect(ctx, "s")
					return err == nil && info.Waiters > 0
				})
				return r.Sessions().Delete(ctx, "s")
			}))
			for _, err := range <-errs {
				refusedWith(t, err, core.ErrNotFound, sessionstore.ErrDeleted)
			}
			said(t, r, "s", "no session")
		}
	})
}

// Beluga's agents and Runner put codes of their own around an error.
func TestErrors_insideAnother_keepTheirCode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err       error
		code      core.ErrorCode
		retryable bool
	}{
		"lost":  {core.Errorf(core.ErrProviderDown, "generate failed: %w", distlock.ErrLost), belugamemory.ErrLockLost, false},
		"busy":  {core.NewError("team", core.ErrInvalidInput, "stage 1", core.NewError("x", core.ErrTimeout, "", distlock.ErrNotAcquired)), core.ErrTimeout, true},
		"model": {core.NewError("team", core.ErrInvalidInput, "stage 1", core.Errorf(core.ErrRateLimit, "slow down")), core.ErrInvalidInput, false},
		"named": {core.NewError("tool", core.ErrInvalidInput, "", core.NewError("belugamemory.answer", core.ErrProviderDown, "",
			distlock.ErrOutcomeUnknown)), core.ErrProviderDown, true},
		"not named": {core.NewError("tool", core.ErrProviderDown, "", core.NewError("belugamemory.save",
			belugamemory.ErrOutcomeUnknown, "", distlock.ErrOutcomeUnknown)), belugamemory.ErrOutcomeUnknown, false},
		"cancelled": {core.Errorf(core.ErrTimeout, "cancelled: %w", fmt.Errorf("%w: %w", distlock.ErrUnavailable, context.Canceled)),
			core.ErrProviderDown, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t, answers(func(context.Context, string) (string, error) { return "", test.err }), "mem://",
				belugarunner.Options{Namespace: t.Name()[len("TestErrors_"):]})
			_, err := say(t, t.Context(), r, "s", "q")
			refusedWith(t, err, test.code, test.err)
			if belugamemory.Retryable(err) != test.retryable || belugamemory.Retryable(test.err) != test.retryable {
				t.Errorf("Retryable is %t for %v", !test.retryable, err)
			}
		})
	}
	if belugamemory.Retryable(nil) || belugamemory.Retryable(errors.New("another")) || !belugamemory.Retryable(distlock.ErrUnavailable) {
		t.Error("wrong for plain errors")
	}
}

// Beluga calls the methods of a typed nil in a goroutine without a recover, which ends the process.
func TestErrors_nilMessagesAndChangedIDs_sayWhatIsWrong(t *testing.T) {
	t.Parallel()
	q, nilMessage := schema.NewHumanMessage("q"), (*schema.HumanMessage)(nil)
	before := func(change func(*runtime.Session), passed schema.Message) hooks {
		return hooks{before: func(_ context.Context, s *runtime.Session, _ schema.Message) (schema.Message, error) {
			change(s)
			return passed, nil
		}}
	}
	changes := func(id string) func(*runtime.Session) { return func(s *runtime.Session) { s.ID = id } }
	after := func(id string) hooks {
		return hooks{after: func(_ context.Context, s *runtime.Session, events []agent.Event) ([]agent.Event, error) {
			changes(id)(s)
			return events, nil
		}}
	}
	for name, test := range map[string]struct {
		input  schema.Message // default: q
		plugin hooks
		text   string
	}{
		"a nil input":           {input: nilMessage, text: "configuration: distlock: invalid option: a message is a nil *schema.HumanMessage"},
		"a nil of another type": {input: (*schema.AIMessage)(nil), text: "nil *schema.AIMessage"},
		"a nil of a plugin": {plugin: before(func(*runtime.Session) {}, nilMessage),
			text: "BeforeTurn of a plugin: distlock: invalid option: a message is a nil *schema.HumanMessage"},
		"an ID changed before": {plugin: before(changes("another"), q), text: "a plugin has changed the ID"},
		"an ID changed after":  {plugin: after("another"), text: "a plugin has changed the ID"},
		"an ID removed after":  {plugin: after(""), text: "a plugin has changed the ID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := "no session"
			if test.input == nil {
				test.input, left = q, ""
			}
			r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: "wrong " + name, Plugins: []runtime.Plugin{&test.plugin}})
			_, err := run(t, t.Context(), r, "s", test.input)
			refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, want the text %q", err, test.text)
			}
			said(t, r, "s", left)
		})
	}
	r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: t.Name()})
	_, asked := say(t, t.Context(), r, "", "q")
	_, got := r.Sessions().Get(t.Context(), "")
	for _, err := range []error{asked, got, r.Sessions().Delete(t.Context(), ""), r.Sessions().Update(t.Context(), &runtime.Session{})} {
		refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
		if err == nil || !strings.Contains(err.Error(), "session ID is empty") {
			t.Errorf("%v does not say that the ID is empty", err)
		}
	}
}

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
		"a service and an ID": {text: "leave out SessionService", opts: belugarunner.Options{
			SessionService: runtime.NewInMemorySessionService(), MessageID: "id"}},
		"a service that keeps events": {text: "leave out SessionService", opts: belugarunner.Options{
			SessionService: runtime.NewInMemorySessionService(), KeepPartial: true}},
		"a service with Interrupt": {text: "Interrupt needs a session store", opts: belugarunner.Options{
			SessionService: runtime.NewInMemorySessionService(), Busy: lockedmemory.Interrupt}},
		"a grace":             {opts: belugarunner.Options{Busy: lockedmemory.Interrupt, Grace: time.Hour}, text: "Grace"},
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
}
