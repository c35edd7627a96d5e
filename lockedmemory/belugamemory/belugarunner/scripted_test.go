package belugarunner_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync"
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
	"github.com/belugalock/belugalock/lockedmemory"
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

func echo(_ context.Context, input string) (string, error) { return "answer to " + input, nil }

// never returns an agent that must not be asked.
func never(why string) answers {
	return func(context.Context, string) (string, error) { panic(why) }
}

var errAgent = errors.New("the agent failed")

func fails(context.Context, string) (string, error) { return "", errAgent }

// thinks is an agent that signals its start and works until the test releases it. It ignores its
// context.
type thinks struct{ begun, goOn chan struct{} }

func newThinks() *thinks { return &thinks{make(chan struct{}), make(chan struct{})} }

func (a *thinks) agent(ctx context.Context, input string) (string, error) {
	close(a.begun)
	<-a.goOn
	return echo(ctx, input)
}

// hooks is a plugin.
type hooks struct {
	before func(ctx context.Context, s *runtime.Session, input schema.Message) (schema.Message, error)
	after  func(ctx context.Context, s *runtime.Session, events []agent.Event) ([]agent.Event, error)
	hides  bool // errors
}

func (h *hooks) Name() string { return "hooks" }

func (h *hooks) BeforeTurn(ctx context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
	if h.before != nil {
		return h.before(ctx, s, input)
	}
	return input, nil
}

func (h *hooks) AfterTurn(ctx context.Context, s *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	if h.after != nil {
		return h.after(ctx, s, events)
	}
	return events, nil
}

func (h *hooks) OnError(_ context.Context, err error) error {
	if h.hides {
		return nil
	}
	return err
}

// before and after make plugins that call a function and have its error.
func before(call func(ctx context.Context) error) *hooks {
	return &hooks{before: func(ctx context.Context, _ *runtime.Session, input schema.Message) (schema.Message, error) {
		return input, call(ctx)
	}}
}

func after(call func(ctx context.Context) error) *hooks {
	return &hooks{after: func(ctx context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
		return events, call(ctx)
	}}
}

// outcomes is an Observer that records the outcomes of turns.
type outcomes struct {
	mu    sync.Mutex
	began int
	ended []distlock.Outcome
}

func (o *outcomes) Start(ctx context.Context, op *distlock.Operation) context.Context {
	if op.Name == lockedmemory.OpTurn {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.began++
	}
	return ctx
}

func (o *outcomes) End(_ context.Context, op *distlock.Operation) {
	if op.Name == lockedmemory.OpTurn {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended = append(o.ended, op.Outcome)
	}
}

// are checks the outcomes of all turns that have begun.
func (o *outcomes) are(t *testing.T, want distlock.Outcome) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ended) != 1 || o.ended[0] != want || o.began != 1 {
		t.Errorf("%d turns have begun, and ended with %v; want one with %s", o.began, o.ended, want)
	}
}

// heedless is a service whose Update ignores the end of its context.
type heedless struct {
	runtime.SessionService
	get     func(ctx context.Context, id string) (*runtime.Session, error) // instead of Get, unless nil
	updated func()                                                         // called before every Update
	fails   error                                                          // of every Update
}

func (h *heedless) Get(ctx context.Context, sessionID string) (*runtime.Session, error) {
	if h.get != nil {
		return h.get(ctx, sessionID)
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
	t        *testing.T
	sessions *heedless
	session  string // the ID of one
	open     func(opts *distlock.Options) (*distlock.Locker, error)
	lose     func()    // takes all locks away from their holders
	observer *outcomes // nil: the Lockers have none
}

// instance is a Runner of its own.
type instance struct {
	*belugarunner.Runner
	agent  answers
	locker *distlock.Locker
}

const leaseTTL = 3 * time.Second

// with makes an instance with the given agent.
func (p *place) with(agent answers, opts ...belugarunner.Options) *instance {
	p.t.Helper()
	i := &instance{agent: agent, locker: p.newLocker()}
	with := belugarunner.Options{}
	if len(opts) > 0 {
		with = opts[0]
	}
	with.SessionService = p.sessions
	asks := answers(func(ctx context.Context, input string) (string, error) { return i.agent(ctx, input) })
	i.Runner = must2(belugarunner.Over(asks, i.locker, &with))
	p.t.Cleanup(i.AwaitWorkers)
	return i
}

func (p *place) newLocker() *distlock.Locker {
	p.t.Helper()
	opts := distlock.Options{TTL: leaseTTL, Wait: 10 * time.Second, Namespace: p.t.Name(), Logger: slog.New(slog.DiscardHandler)}
	if p.observer != nil {
		opts.Observer = p.observer
	}
	locker, err := p.open(&opts)
	must(p.t, err)
	p.t.Cleanup(func() { closeLocker(p.t, locker) })
	return locker
}

func (p *place) say(ctx context.Context, i *instance, input string) (string, error) {
	p.t.Helper()
	return say(p.t, ctx, i.Runner, p.session, input)
}

// refused makes a run that fails with a code of Beluga and a sentinel of this project.
func (p *place) refused(ctx context.Context, i *instance, code core.ErrorCode, sentinel error) {
	p.t.Helper()
	_, err := p.say(ctx, i, "refused")
	refusedWith(p.t, err, code, sentinel)
}

func (p *place) talk(i *instance, inputs ...string) {
	p.t.Helper()
	talk(p.t, i.Runner, p.session, inputs...)
}

// turns checks the inputs of the session's turns.
func (p *place) turns(want string) {
	p.t.Helper()
	session, err := p.sessions.SessionService.Get(context.Background(), p.session)
	must(p.t, err)
	if got := inputs(session); got != want {
		p.t.Errorf("the turns are %q, want %q", got, want)
	}
}

// free reports whether the lock of the session is free.
func (p *place) free(i *instance) bool {
	p.t.Helper()
	info, err := i.locker.Inspect(context.Background(), p.session)
	must(p.t, err)
	return !info.Held
}

// isFree checks whether the lock of the session is free.
func (p *place) isFree(i *instance, want bool) {
	p.t.Helper()
	if p.free(i) != want {
		p.t.Errorf("the lock is free: %t, want %t", !want, want)
	}
}

// cancelled begins a run of the instance and cancels it while its agent a works.
func (p *place) cancelled(i *instance, a *thinks, input string) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	go func() {
		<-a.begun
		cancel()
	}()
	if _, err := p.say(ctx, i, input); err != context.Canceled {
		p.t.Fatalf("the run that was cancelled: %v", err)
	}
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, observer: new(outcomes), sessions: &heedless{SessionService: runtime.NewInMemorySessionService()}}
	session, err := p.sessions.Create(t.Context(), "agent")
	must(t, err)
	p.session = session.ID
	return p
}

// onFakeTime runs a test with instances in one process.
func onFakeTime(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		faults := drivertest.NewFaults(memlock.NewDriver())
		p.open = func(opts *distlock.Options) (*distlock.Locker, error) { return distlock.New(faults, opts) }
		p.lose = func() {
			faults.Inject(func(c drivertest.Call) drivertest.Fault {
				if c.Op == drivertest.Extend {
					return drivertest.Fault{Before: errors.New("cut off")}
				}
				return drivertest.Fault{}
			})
		}
		test(t, p)
	})
}

// onRedis runs a test with instances that share a Redis.
func onRedis(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	p := newPlace(t)
	server := servers.SharedServer()
	p.open = func(opts *distlock.Options) (*distlock.Locker, error) {
		return lockurl.Open(t.Context(), server.URL(), opts)
	}
	p.lose = func() {
		if _, err := server.Do("EVAL", "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end",
			"0", t.Name()+":*"); err != nil {
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

// newRunner makes a Runner that ends with the test.
func newRunner(t testing.TB, a agent.Agent, url string, opts ...belugarunner.Options) *belugarunner.Runner {
	t.Helper()
	var only *belugarunner.Options
	if len(opts) > 0 {
		only = &opts[0]
	}
	r, err := belugarunner.New(a, url, only)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return r
}

func closeLocker(t *testing.T, locker *distlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := locker.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// say iterates a whole run, which yields its events or one error.
func say(t testing.TB, ctx context.Context, r *belugarunner.Runner, session, input string) (string, error) {
	t.Helper()
	return run(t, ctx, r, session, schema.NewHumanMessage(input))
}

func run(t testing.TB, ctx context.Context, r *belugarunner.Runner, session string, input schema.Message) (answer string, failure error) {
	t.Helper()
	for event, err := range r.Run(ctx, session, input) {
		if failure != nil || err != nil && answer != "" {
			t.Errorf("a run yields the text %q, and the errors %v and %v; want events or one error", answer, failure, err)
		}
		answer, failure = answer+event.Text, err
	}
	return answer, failure
}

// answered returns a check of the result of say.
func answered(t testing.TB, want string) func(answer string, err error) {
	return func(answer string, err error) {
		t.Helper()
		if answer != want || err != nil {
			t.Errorf("%q, %v; want %q", answer, err, want)
		}
	}
}

// talk makes a turn of each input.
func talk(t testing.TB, r *belugarunner.Runner, session string, inputs ...string) {
	t.Helper()
	for _, input := range inputs {
		if _, err := say(t, t.Context(), r, session, input); err != nil {
			t.Error(err)
		}
	}
}

// said checks the inputs of a session's turns, or that there is "no session".
func said(t testing.TB, r *belugarunner.Runner, session, want string) {
	t.Helper()
	stored, err := r.Sessions().Get(t.Context(), session)
	got := "no session"
	if coded := (*core.Error)(nil); !errors.As(err, &coded) || coded.Code != core.ErrNotFound {
		must(t, err)
		got = inputs(stored)
	}
	if got != want {
		t.Errorf("the session has the turns %q, want %q", got, want)
	}
}

// freeAfter returns the time until the lock of a session is free.
func freeAfter(t testing.TB, r *belugarunner.Runner, session string) time.Duration {
	t.Helper()
	start := time.Now()
	lease, err := r.Locker().Acquire(t.Context(), session, distlock.WithWait(time.Hour))
	must(t, err)
	must(t, lease.Release(t.Context()))
	return time.Since(start)
}

func inputs(session *runtime.Session) string {
	var texts []string
	for _, turn := range session.Turns {
		texts = append(texts, turn.Input.(*schema.HumanMessage).Text())
	}
	return strings.Join(texts, " ")
}

// refusedWith checks that an error has a code of Beluga and a sentinel of this project.
func refusedWith(t testing.TB, err error, code core.ErrorCode, sentinel error) {
	t.Helper()
	var coded *core.Error
	if !errors.As(err, &coded) || coded.Code != code || !errors.Is(err, sentinel) {
		t.Errorf("error %v, want the code %s and %v", err, code, sentinel)
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

func second[T any](_ T, err error) error { return err }
