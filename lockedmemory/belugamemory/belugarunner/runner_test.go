package belugarunner_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/runtime/plugins"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// newRunner makes a Runner that ends with the test.
func newRunner(t testing.TB, a agent.Agent, url string, opts ...belugarunner.Options) *belugarunner.Runner {
	t.Helper()
	r, err := belugarunner.New(a, url, only(opts))
	must(t, err)
	t.Cleanup(func() { shutDown(t, r) })
	return r
}

// only returns the Options of a test, or nil.
func only(opts []belugarunner.Options) *belugarunner.Options {
	if len(opts) == 0 {
		return nil
	}
	return &opts[0]
}

func shutDown(t testing.TB, r *belugarunner.Runner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// say iterates a whole run.
func say(ctx context.Context, r *belugarunner.Runner, session, input string) (answer string, errs []error) {
	for event, err := range r.Run(ctx, session, schema.NewHumanMessage(input)) {
		if answer += event.Text; err != nil {
			errs = append(errs, err)
		}
	}
	return answer, errs
}

// answered returns a check of the result of say.
func answered(t testing.TB, want string) func(answer string, errs []error) {
	return func(answer string, errs []error) {
		t.Helper()
		if answer != want || errs != nil {
			t.Errorf("%q, %v; want %q", answer, errs, want)
		}
	}
}

// succeeds returns a check of say's errors.
func succeeds(t testing.TB) func(string, []error) {
	return func(_ string, errs []error) {
		t.Helper()
		if errs != nil {
			t.Error(errs)
		}
	}
}

// talk makes a turn of each input.
func talk(t testing.TB, r *belugarunner.Runner, session string, inputs ...string) {
	t.Helper()
	for _, input := range inputs {
		succeeds(t)(say(t.Context(), r, session, input))
	}
}

// said returns the inputs of a session's turns.
func said(t testing.TB, ctx context.Context, r *belugarunner.Runner, session string) string {
	t.Helper()
	stored, err := r.Sessions().Get(ctx, session)
	if coded := (*core.Error)(nil); errors.As(err, &coded) && coded.Code == core.ErrNotFound {
		return "no session"
	}
	must(t, err)
	var inputs []string
	for _, turn := range stored.Turns {
		inputs = append(inputs, turn.Input.(*schema.HumanMessage).Text())
	}
	return strings.Join(inputs, " ")
}

// hooks is a plugin.
type hooks struct {
	before, after func(ctx context.Context) error
	hides         bool // errors
}

func (h *hooks) Name() string { return "hooks" }

func (h *hooks) BeforeTurn(ctx context.Context, _ *runtime.Session, input schema.Message) (schema.Message, error) {
	if h.before != nil {
		return input, h.before(ctx)
	}
	return input, nil
}

func (h *hooks) AfterTurn(ctx context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	if h.after != nil {
		return events, h.after(ctx)
	}
	return events, nil
}

func (h *hooks) OnError(_ context.Context, err error) error {
	if h.hides {
		return nil
	}
	return err
}

// The session of a run is free in Redis as soon as nothing of the run can write any more.
func TestRunner_L_freesItsSession(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	works := func(ctx context.Context) error { // until the client has left
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	answering := func(err error) answers {
		return func(_ context.Context, input string) (string, error) { return input, err }
	}
	for name, test := range map[string]struct {
		agent   answers
		plugins []runtime.Plugin
		reader  func() bool // after each event, unless nil
		leaves  bool        // the client cancels the run while the agent or a plugin works
		stored  string
	}{
		"ends":            {agent: echo, stored: "q"},
		"breaks":          {agent: echo, reader: func() bool { return false }, stored: "q"},
		"panics":          {agent: echo, reader: func() bool { panic("the reader") }, stored: "q"},
		"fails":           {agent: answering(errAgent)},
		"hides its error": {agent: answering(core.NewError("", core.ErrRateLimit, "", nil)), plugins: []runtime.Plugin{plugins.NewRetryAndReflect(99)}},
		"fails before the turn": {agent: echo,
			plugins: []runtime.Plugin{&hooks{before: func(context.Context) error { return errAgent }}}},
		"is cancelled": {leaves: true, agent: func(ctx context.Context, _ string) (string, error) { return "", works(ctx) }},
		"is cancelled, and its agent answers": {leaves: true,
			agent: func(ctx context.Context, input string) (string, error) { _ = works(ctx); return input, nil }},
		"is cancelled before the turn": {leaves: true, agent: echo, plugins: []runtime.Plugin{&hooks{before: works}}},
		"is cancelled after the turn":  {leaves: true, agent: echo, plugins: []runtime.Plugin{&hooks{after: works}}},
	} {
		t.Run(name, func(t *testing.T) {
			url, namespace := servers.SharedServer().URL(), t.Name()
			r := newRunner(t, test.agent, url, belugarunner.Options{Namespace: namespace, Plugins: test.plugins})
			other, err := lockurl.Open(t.Context(), url, &distlock.Options{Namespace: namespace}) // as another process
			must(t, err)
			defer closeLocker(t, other)
			var longest time.Duration
			for n := range 5 {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan time.Time, 1)
				if test.leaves {
					go func() { <-begun; ended <- time.Now(); cancel() }()
				}
				func() {
					defer func() { _ = recover() }()
					for range r.Run(ctx, fmt.Sprint(n), schema.NewHumanMessage("q")) {
						if test.reader != nil && !test.reader() {
							break
						}
					}
				}()
				if !test.leaves {
					ended <- time.Now()
				}
				began := <-ended
				servers.Await(t, 20*time.Second, "the session is free", func() bool {
					info, err := other.Inspect(t.Context(), fmt.Sprint(n))
					return err == nil && !info.Held
				})
				longest = max(longest, time.Since(began))
				cancel()
				if got := said(t, t.Context(), r, fmt.Sprint(n)); got != test.stored {
					t.Errorf("the turns %q, want %q", got, test.stored)
				}
			}
			t.Logf("free after at most %s", longest)
			if longest > 10*time.Second { // the TTL is 30 s
				t.Errorf("free after %s", longest)
			}
		})
	}
}

// A panic of the agent ends the process. The session is free before.
func TestRunner_L_panicFreesItsSession(t *testing.T) {
	if url := os.Getenv("PANICKING_RUNNER"); url != "" {
		r := must2(belugarunner.New(answers(func(context.Context, string) (string, error) {
			fmt.Println("at work")
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			panic("the agent")
		}), url, nil))
		say(context.Background(), r, "s", "q")
		return
	}
	t.Parallel()
	server := servers.StartRedis(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestRunner_L_panicFreesItsSession$")
	cmd.Env = append(os.Environ(), "PANICKING_RUNNER="+server.URL())
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "at work"; {
	}
	other, err := lockurl.Open(t.Context(), server.URL(), nil)
	must(t, err)
	defer closeLocker(t, other)
	free := func() bool {
		info, err := other.Inspect(t.Context(), "s")
		must(t, err)
		return !info.Held
	}
	if free() {
		t.Error("the session is free while the agent works")
	}
	began := time.Now()
	_, err = io.WriteString(in, "\n")
	must(t, err)
	servers.Await(t, 20*time.Second, "the session is free", free)
	if took := time.Since(began); took > 10*time.Second { // the TTL is 30 s
		t.Errorf("free after %s", took)
	} else {
		t.Logf("free after %s", took)
	}
}

// The first request acquires the lock, the second reads the session. The third stores the session and
// releases the lock.
func TestRunner_threeRequests(t *testing.T) {
	server := servers.StartRedis(t)
	r := newRunner(t, answers(echo), server.URL())
	before := requests(t, server)
	own := requests(t, server) - before
	for n := range 3 {
		before = requests(t, server)
		answered(t, "answer to q")(say(t.Context(), r, "s", "q"))
		if got := requests(t, server) - before - own; n > 1 && got != 3 { // the first two load scripts
			t.Errorf("%d requests", got)
		}
	}
}

func TestRunner_S1_insideADo_keepsItsLock(t *testing.T) {
	url := servers.SharedServer().URL()
	r := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: t.Name()})
	must(t, r.Locker().Do(t.Context(), "s", func(ctx context.Context) error {
		for range 2 {
			answered(t, "answer to q")(say(ctx, r, "s", "q"))
			if info, err := r.Locker().Inspect(ctx, "s"); err != nil || !info.Held {
				t.Errorf("the lock: %+v, %v", info, err)
			}
		}
		return nil
	}))
}

// Runners and memories of a process share the Locker of equal locks, and the connections in any case.
func TestNew_sharesTheLocker(t *testing.T) {
	server := servers.StartRedis(t)
	r := newRunner(t, answers(echo), server.URL())
	mem, err := belugamemory.New(config.ProviderConfig{BaseURL: server.URL()})
	must(t, err)
	defer mem.Close(context.Background())
	for name, test := range map[string]struct {
		locker *distlock.Locker
		shared bool
	}{
		"equal":                  {newRunner(t, answers(echo), server.URL()).Locker(), true},
		"other settings of runs": {newRunner(t, answers(echo), server.URL(), belugarunner.Options{Wait: time.Second, MaxHold: time.Minute, Busy: 1}).Locker(), true},
		"a memory":               {mem.Locker(), true},
		"another TTL":            {newRunner(t, answers(echo), server.URL(), belugarunner.Options{TTL: time.Second}).Locker(), false},
		"another namespace":      {newRunner(t, answers(echo), server.URL(), belugarunner.Options{Namespace: "n"}).Locker(), false},
	} {
		if (test.locker == r.Locker()) != test.shared {
			t.Errorf("%s: the Locker is shared: %t", name, !test.shared)
		}
	}
	// A memory of the same server, namespace and session has messages of its own, under the same lease.
	ctx := core.WithSessionID(t.Context(), "s")
	saves := newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
		in, out := question(input)
		return "saved", mem.Save(ctx, in, out)
	}), server.URL())
	for range 2 {
		answered(t, "saved")(say(t.Context(), saves, "s", "q"))
	}
	messages, err := mem.Load(ctx, "")
	if got := said(t, ctx, saves, "s"); err != nil || len(messages) != 4 || got != "q q" {
		t.Errorf("the memory has %d messages, %v; the session has the turns %q", len(messages), err, got)
	}
	list, err := server.Do("KEYS", "*")
	if err != nil || !strings.Contains(list, "distlock:{s}") || !strings.Contains(list, "run:{s}") {
		t.Errorf("the keys are %q, %v", list, err)
	}
}

// Busy is for runs. Create and Delete wait for the session.
func TestSessions_busy_wait(t *testing.T) {
	onMem(t, func(t *testing.T) {
		r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Busy: lockedmemory.Refuse})
		for name, test := range map[string]func(ctx context.Context) error{
			"Create": func(ctx context.Context) error { return second(r.Sessions().Create(ctx, "agent")) },
			"Delete": func(ctx context.Context) error { return r.Sessions().Delete(ctx, "s") },
		} {
			lease, err := r.Locker().Acquire(t.Context(), "s")
			must(t, err)
			time.AfterFunc(time.Second, func() { _ = lease.Release(context.Background()) })
			start := time.Now()
			err = test(core.WithSessionID(t.Context(), "s"))
			took := time.Since(start).Round(time.Millisecond)
			if took != time.Second || errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("%s: after %s: %v", name, took, err)
			}
		}
	})
}

// A session belongs to one agent.
func TestRunner_sessionOfAnotherAgent_refused(t *testing.T) {
	onMem(t, func(t *testing.T) {
		first := newRunner(t, answers(echo), "mem://")
		never := answers(func(context.Context, string) (string, error) { panic("the session is another's") })
		second := newRunner(t, never, "mem://", belugarunner.Options{AgentID: "another"})
		say(t.Context(), first, "s", "q")
		for range 2 {
			answer, errs := say(t.Context(), second, "s", "q")
			if answer != "" || len(errs) != 1 {
				t.Fatalf("%q, %v; want one error", answer, errs)
			}
			refusedWith(t, errs[0], core.ErrInvalidInput, distlock.ErrInvalidOption)
		}
		if got := said(t, t.Context(), first, "s"); got != "q" {
			t.Errorf("the turns %q", got)
		}
		// A session that names no agent is for all.
		_, err := first.Sessions().Create(core.WithSessionID(t.Context(), "open"), "")
		must(t, err)
		answered(t, "answer to q")(say(t.Context(), first, "open", "q"))
		stored, err := first.Sessions().Get(t.Context(), "s")
		if err != nil || stored.AgentID != "agent" || stored.ID != "s" {
			t.Errorf("%+v, %v", stored, err)
		}
		_, errs := say(t.Context(), first, "", "q")
		if len(errs) != 1 {
			t.Fatal(errs)
		}
		refusedWith(t, errs[0], core.ErrInvalidInput, distlock.ErrInvalidKey)
	})
}

// A run may contain runs of other sessions, however many there are. Two that wait for each other end.
func TestRunner_L_nestedRuns(t *testing.T) {
	onMem(t, func(t *testing.T) {
		const runs = 30
		var inside sync.WaitGroup
		inside.Add(runs)
		var r *belugarunner.Runner
		r = newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
			to, rest, ok := strings.Cut(input, " ")
			if !ok {
				return input, nil
			}
			inside.Done()
			inside.Wait() // all outer runs are at work
			answer, errs := say(ctx, r, to, rest)
			return answer, errors.Join(errs...)
		}), "mem://", belugarunner.Options{Wait: time.Minute})
		var all sync.WaitGroup
		for n := range runs {
			all.Go(func() {
				answered(t, "ok")(say(t.Context(), r, fmt.Sprint("outer ", n), fmt.Sprint(n, " ok")))
			})
		}
		all.Wait()
		inside.Add(2)
		start := time.Now()
		for _, each := range [][2]string{{"a", "b x"}, {"b", "a x"}} {
			all.Go(func() {
				_, errs := say(t.Context(), r, each[0], each[1])
				if len(errs) > 0 {
					refusedWith(t, errs[0], core.ErrTimeout, distlock.ErrNotAcquired)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took > time.Minute+time.Second {
			t.Errorf("they waited for %s", took)
		}
	})
}

// Beluga's Runner returns before its worker. Only the end of the worker frees the session.
func TestRunner_L_worker(t *testing.T) {
	for name, ignores := range map[string]time.Duration{"heeds its context": 0, "ignores its context": time.Minute,
		"ignores its context after the agent": time.Minute} {
		t.Run(name, func(t *testing.T) {
			onMem(t, func(t *testing.T) {
				works := func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(ignores)
					return ctx.Err()
				}
				plugin := &hooks{before: works}
				if strings.HasSuffix(name, "after the agent") {
					plugin = &hooks{after: works}
				}
				r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Plugins: []runtime.Plugin{plugin}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				say(ctx, r, "s", "q")
				start := time.Now()
				lease, err := r.Locker().Acquire(t.Context(), "s", distlock.WithWait(time.Hour))
				must(t, err)
				must(t, lease.Release(t.Context()))
				if took := time.Since(start); took != ignores {
					t.Errorf("the session is free after %s, want %s", took, ignores)
				}
			})
		})
	}
}

// onMem runs a test with mem:// on a clock of its own.
func onMem(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
