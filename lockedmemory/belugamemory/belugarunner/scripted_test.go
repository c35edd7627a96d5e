package belugarunner_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// answers is an agent.
type answers func(ctx context.Context, input string) (string, error)

func (a answers) ID() string              { return "agent" }
func (a answers) Persona() agent.Persona  { return agent.Persona{} }
func (a answers) Tools() []tool.Tool      { return nil }
func (a answers) Children() []agent.Agent { return nil }

func (a answers) Invoke(ctx context.Context, input string, _ ...agent.Option) (string, error) {
	return a(ctx, input)
}

func (a answers) Stream(ctx context.Context, input string, _ ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		text, err := a(ctx, input)
		yield(agent.Event{Type: agent.EventText, Text: text}, err)
	}
}

// heedless is a service whose Update ignores the end of its context.
type heedless struct {
	runtime.SessionService
	updated func()                          // called before every Update
	fails   error                           // of every Update
	got     func(ctx context.Context) error // fails a Get, unless nil
}

func (h *heedless) Get(ctx context.Context, sessionID string) (*runtime.Session, error) {
	if h.got != nil {
		return nil, h.got(ctx)
	}
	return h.SessionService.Get(ctx, sessionID)
}

func (h *heedless) Update(ctx context.Context, session *runtime.Session) error {
	if h.updated != nil {
		h.updated()
	}
	if h.fails != nil {
		return h.fails
	}
	return h.SessionService.Update(context.WithoutCancel(ctx), session)
}

// place holds the sessions and locks of some instances.
type place struct {
	sessions  *heedless
	session   string // the ID of one
	newLocker func(t *testing.T, opts distlock.Options) *distlock.Locker
	lose      func(t *testing.T) // takes all locks away from their holders
	observer  distlock.Observer
}

// instance is a Runner of its own.
type instance struct {
	*belugarunner.Runner
	agent  answers
	locker *distlock.Locker
}

const leaseTTL = 3 * time.Second

// with makes an instance with the given agent.
func (p *place) with(t *testing.T, agent func(ctx context.Context, input string) (string, error),
	opts ...belugarunner.Options) *instance {
	t.Helper()
	i := &instance{agent: agent, locker: p.newLocker(t, distlock.Options{TTL: leaseTTL, Wait: 10 * time.Second, Observer: p.observer,
		Logger: slog.New(slog.DiscardHandler)})}
	asks := answers(func(ctx context.Context, input string) (string, error) { return i.agent(ctx, input) })
	with := belugarunner.Options{}
	if len(opts) > 0 {
		with = opts[0]
	}
	with.SessionService = p.sessions
	i.Runner = must2(belugarunner.Over(asks, i.locker, &with))
	t.Cleanup(i.AwaitWorkers)
	return i
}

// say iterates a whole run and returns its events and errors.
func (p *place) say(ctx context.Context, i *instance, input string) (answer string, errs []error) {
	return say(ctx, i.Runner, p.session, input)
}

// turns returns the inputs of the session's turns.
func (p *place) turns(t *testing.T) string {
	t.Helper()
	session, err := p.sessions.Get(context.Background(), p.session)
	must(t, err)
	var inputs []string
	for _, turn := range session.Turns {
		inputs = append(inputs, turn.Input.(*schema.HumanMessage).Text())
	}
	return strings.Join(inputs, " ")
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{sessions: &heedless{SessionService: runtime.NewInMemorySessionService()}}
	session, err := p.sessions.Create(t.Context(), "agent")
	must(t, err)
	p.session = session.ID
	return p
}

// onFakeTime runs a test with instances in one process.
func onFakeTime(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, inProcess(t)) })
}

func inProcess(t *testing.T) *place {
	t.Helper()
	p := newPlace(t)
	faults := drivertest.NewFaults(memlock.NewDriver())
	p.newLocker = func(t *testing.T, opts distlock.Options) *distlock.Locker {
		locker, err := distlock.New(faults, &opts)
		must(t, err)
		t.Cleanup(func() { closeLocker(t, locker) })
		return locker
	}
	p.lose = func(*testing.T) {
		faults.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend {
				return drivertest.Fault{Before: errors.New("cut off")}
			}
			return drivertest.Fault{}
		})
	}
	return p
}

// onRedis runs a test with instances that share a Redis.
func onRedis(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	p := newPlace(t)
	server, namespace := servers.SharedServer(), t.Name()
	p.newLocker = func(t *testing.T, opts distlock.Options) *distlock.Locker {
		opts.Namespace = namespace
		locker, err := lockurl.Open(t.Context(), server.URL(), &opts)
		must(t, err)
		t.Cleanup(func() { closeLocker(t, locker) })
		return locker
	}
	p.lose = func(t *testing.T) {
		if _, err := server.Do("EVAL", "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end",
			"0", namespace+":*"); err != nil {
			t.Fatal(err)
		}
	}
	test(t, p)
}

// everywhere runs a test in both places, in parallel with other tests.
func everywhere(t *testing.T, test func(t *testing.T, p *place)) {
	t.Parallel()
	t.Run("in process", func(t *testing.T) { onFakeTime(t, test) })
	t.Run("on Redis", func(t *testing.T) { onRedis(t, test) })
}

func closeLocker(t *testing.T, locker *distlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := locker.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// free reports whether the lock of the session is free.
func (p *place) free(t *testing.T, i *instance) bool {
	t.Helper()
	info, err := i.locker.Inspect(context.Background(), p.session)
	must(t, err)
	return !info.Held
}

// refusedWith checks that an error has a code of Beluga and a sentinel of this project.
func refusedWith(t *testing.T, err error, code core.ErrorCode, sentinel error) {
	t.Helper()
	var coded *core.Error
	if !errors.As(err, &coded) || coded.Code != code || !errors.Is(err, sentinel) {
		t.Errorf("error %v, want the code %s and %v", err, code, sentinel)
	}
}

func echo(_ context.Context, input string) (string, error) { return "answer to " + input, nil }

// thinks is an agent that signals its start and works until the test releases it. It ignores its
// context.
type thinks struct{ begun, goOn chan struct{} }

func newThinks() *thinks { return &thinks{make(chan struct{}), make(chan struct{})} }

func (a *thinks) agent(ctx context.Context, input string) (string, error) {
	close(a.begun)
	<-a.goOn
	return echo(ctx, input)
}

// cancelled begins a run of the instance and cancels it while its agent a works.
func (p *place) cancelled(t *testing.T, i *instance, a *thinks, input string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-a.begun
		cancel()
	}()
	if answer, errs := p.say(ctx, i, input); answer != "" || len(errs) != 1 || errs[0] != context.Canceled {
		t.Fatalf("the run that was cancelled: %q, %v", answer, errs)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
