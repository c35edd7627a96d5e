package belugarunner_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

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

// The session of a run is free as soon as nothing of the run can write any more: with the end of the run,
// or of the worker of a run whose client has left. Beluga's Runner returns before its worker.
func TestRunner_L_freesItsSession(t *testing.T) {
	works := func(longer time.Duration) func(ctx context.Context) error { // than the client waits
		return func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(longer)
			return ctx.Err()
		}
	}
	limited := func(context.Context, string) (string, error) {
		return "", core.NewError("", core.ErrRateLimit, "", nil)
	}
	for name, test := range map[string]struct {
		agent  answers        // default: echo
		plugin runtime.Plugin // default: none of effect
		reader func() bool    // after each event, unless nil
		longer time.Duration  // is the session held than the client waits
		stored string
	}{
		"ends":                  {stored: "q"},
		"breaks":                {reader: func() bool { return false }, stored: "q"},
		"panics":                {reader: func() bool { panic("the reader") }, stored: "q"},
		"fails":                 {agent: fails},
		"hides its error":       {agent: limited, plugin: plugins.NewRetryAndReflect(99)},
		"fails before the turn": {plugin: before(func(context.Context) error { return errAgent })},
		"is cancelled":          {agent: func(ctx context.Context, _ string) (string, error) { return "", works(0)(ctx) }},
		"is cancelled, and its agent answers": {agent: func(ctx context.Context, input string) (string, error) {
			_ = works(0)(ctx)
			return input, nil
		}},
		"is cancelled before the turn":        {plugin: before(works(0))},
		"is cancelled after the turn":         {plugin: after(works(0))},
		"ignores its context":                 {plugin: before(works(time.Minute)), longer: time.Minute},
		"ignores its context after the agent": {plugin: after(works(time.Minute)), longer: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			onMem(t, func(t *testing.T) {
				if test.agent == nil {
					test.agent = echo
				}
				if test.plugin == nil {
					test.plugin = &hooks{}
				}
				r := newRunner(t, test.agent, "mem://", belugarunner.Options{Plugins: []runtime.Plugin{test.plugin}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				func() {
					defer func() { _ = recover() }()
					for range r.Run(ctx, "s", schema.NewHumanMessage("q")) {
						if test.reader != nil && !test.reader() {
							break
						}
					}
				}()
				start := time.Now()
				lease, err := r.Locker().Acquire(t.Context(), "s", distlock.WithWait(time.Hour))
				must(t, err)
				must(t, lease.Release(t.Context()))
				if took := time.Since(start); took != test.longer {
					t.Errorf("the session is free after %s, want %s", took, test.longer)
				}
				if got := said(t, r, "s"); got != test.stored {
					t.Errorf("the turns %q, want %q", got, test.stored)
				}
			})
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
		_, _ = say(t, context.Background(), r, "s", "q")
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
		answered(t, "answer to q")(say(t, t.Context(), r, "s", "q"))
		if got := requests(t, server) - before - own; n > 1 && got != 3 { // the first two load scripts
			t.Errorf("%d requests", got)
		}
	}
}

var reads = regexp.MustCompile(`total_reads_processed:(\d+)`)

// requests returns how many requests the server has read.
func requests(t testing.TB, server *servers.Redis) int {
	t.Helper()
	info, err := server.Do("INFO", "stats")
	must(t, err)
	return must2(strconv.Atoi(reads.FindStringSubmatch(info)[1]))
}

func TestRunner_S1_insideADo_keepsItsLock(t *testing.T) {
	url := servers.SharedServer().URL()
	r := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: t.Name()})
	must(t, r.Locker().Do(t.Context(), "s", func(ctx context.Context) error {
		for range 2 {
			answered(t, "answer to q")(say(t, ctx, r, "s", "q"))
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
		answered(t, "saved")(say(t, t.Context(), saves, "s", "q"))
	}
	messages, err := mem.Load(ctx, "")
	if got := said(t, saves, "s"); err != nil || len(messages) != 4 || got != "q q" {
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
		second := newRunner(t, never("the session is another's"), "mem://", belugarunner.Options{AgentID: "another"})
		talk(t, first, "s", "q")
		for range 2 {
			_, err := say(t, t.Context(), second, "s", "q")
			refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
		}
		if got := said(t, first, "s"); got != "q" {
			t.Errorf("the turns %q", got)
		}
		// A session that names no agent is for all.
		_, err := first.Sessions().Create(core.WithSessionID(t.Context(), "open"), "")
		must(t, err)
		answered(t, "answer to q")(say(t, t.Context(), first, "open", "q"))
		stored, err := first.Sessions().Get(t.Context(), "s")
		if err != nil || stored.AgentID != "agent" || stored.ID != "s" {
			t.Errorf("%+v, %v", stored, err)
		}
		_, err = say(t, t.Context(), first, "", "q")
		refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
	})
}

// A run may contain a run of another session. Two that wait for each other end.
func TestRunner_L_nestedRuns(t *testing.T) {
	onMem(t, func(t *testing.T) {
		var inside, all sync.WaitGroup
		var r *belugarunner.Runner
		r = newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
			to, rest, ok := strings.Cut(input, " ")
			if !ok {
				return input, nil
			}
			inside.Done()
			inside.Wait() // all outer runs are at work
			return say(t, ctx, r, to, rest)
		}), "mem://", belugarunner.Options{Wait: time.Minute})
		inside.Add(1)
		answered(t, "ok")(say(t, t.Context(), r, "a", "b ok"))
		inside.Add(2)
		start := time.Now()
		for _, each := range [][2]string{{"a", "b x"}, {"b", "a x"}} {
			all.Go(func() {
				if _, err := say(t, t.Context(), r, each[0], each[1]); err != nil {
					refusedWith(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took > time.Minute+time.Second {
			t.Errorf("they waited for %s", took)
		}
	})
}
