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
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// scripted behaves like Beluga's Runner. A worker reads the session, calls the agent, and replaces
// the session. A run whose context has ended returns, and its worker continues.
type scripted struct {
	sessions runtime.SessionService
	agent    answers
	wrap     agent.Middleware          // of the agent, unless nil
	after    func(ctx context.Context) // what plugins do, unless nil
	hides    bool                      // a plugin hides errors
	workers  sync.WaitGroup
}

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

// streamed returns the text of an agent's stream.
func streamed(ctx context.Context, a agent.Agent, input string) (text string, err error) {
	for event, err := range a.Stream(ctx, input) {
		if err != nil {
			return "", err
		}
		text += event.Text
	}
	return text, nil
}

func (s *scripted) Run(ctx context.Context, sessionID, input string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := ctx.Err(); err != nil {
			yield("", err)
			return
		}
		type result struct {
			answer string
			err    error
		}
		results := make(chan result, 1)
		s.workers.Go(func() {
			answer, err := s.turn(ctx, sessionID, input)
			results <- result{answer, err}
		})
		select {
		case <-ctx.Done():
			yield("", ctx.Err())
		case r := <-results:
			if r.err != nil && s.hides {
				yield("", nil)
				return
			} else if r.err != nil {
				yield("", r.err)
				return
			}
			for word := range strings.FieldsSeq(r.answer) {
				if !yield(word, nil) {
					return
				}
			}
		}
	}
}

func (s *scripted) turn(ctx context.Context, sessionID, input string) (string, error) {
	session, err := s.sessions.Get(ctx, sessionID)
	var coded *core.Error
	if errors.As(err, &coded) && coded.Code == core.ErrNotFound {
		session, err = s.sessions.Create(ctx, "agent")
	}
	if err != nil {
		return "", err
	}
	var a agent.Agent = s.agent
	if s.wrap != nil {
		a = s.wrap(a)
	}
	answer, err := streamed(ctx, a, input)
	if err != nil {
		return "", err
	}
	if s.after != nil {
		s.after(ctx)
	}
	session.Turns = append(session.Turns,
		schema.Turn{Input: schema.NewHumanMessage(input), Output: schema.NewAIMessage(answer)})
	if err := s.sessions.Update(ctx, session); err != nil {
		slog.New(slog.DiscardHandler).Warn("failed to update session", "error", err)
	}
	return answer, nil
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

type instance struct {
	scripted
	locker *distlock.Locker
	locked func(ctx context.Context, sessionID, input string) iter.Seq2[string, error]
}

const leaseTTL = 3 * time.Second

// with makes an instance with the given agent.
func (p *place) with(t *testing.T, agent func(ctx context.Context, input string) (string, error),
	opts ...belugarunner.Option) *instance {
	t.Helper()
	i := &instance{locker: p.newLocker(t, distlock.Options{TTL: leaseTTL, Wait: 10 * time.Second, Observer: p.observer,
		Logger: slog.New(slog.DiscardHandler)})}
	i.agent = agent
	var err error
	if i.scripted.sessions, err = belugarunner.WrapSessions(p.sessions, i.locker); err != nil {
		t.Fatal(err)
	}
	if i.locked, err = belugarunner.LockRun(i.locker, i.scripted.Run, opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.workers.Wait)
	return i
}

// say iterates a whole run and returns its events and errors.
func (p *place) say(ctx context.Context, i *instance, input string) (answer string, errs []error) {
	var events []string
	for event, err := range i.locked(ctx, p.session, input) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		events = append(events, event)
	}
	return strings.Join(events, " "), errs
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
	server, namespace := testservers.SharedServer(), t.Name()
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
