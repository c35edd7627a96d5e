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
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/runtime/plugins"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/migrated"
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
			synctest.Test(t, func(t *testing.T) {
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
				if took := freeAfter(t, r, "s"); took != test.longer {
					t.Errorf("the session is free after %s, want %s", took, test.longer)
				}
				said(t, r, "s", test.stored)
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
	in := must2(cmd.StdinPipe())
	out := must2(cmd.StdoutPipe())
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "at work"; {
	}
	other := must2(lockurl.Open(t.Context(), server.URL(), nil))
	defer closeLocker(t, other)
	free := func() bool {
		info := must2(other.Inspect(t.Context(), "s"))
		return !info.Held
	}
	if free() {
		t.Error("the session is free while the agent works")
	}
	began := time.Now()
	must(t, second(io.WriteString(in, "\n")))
	servers.Await(t, 20*time.Second, "the session is free", free)
	if took := time.Since(began); took > 10*time.Second { // the TTL is 30 s
		t.Errorf("free after %s", took)
	}
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
	mem := must2(belugamemory.New(config.ProviderConfig{BaseURL: server.URL()}))
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
	saves := newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
		in, out := question(input)
		return "saved", mem.Save(ctx, in, out)
	}), server.URL())
	for range 2 {
		answered(t, "saved")(say(t, t.Context(), saves, "s", "q"))
	}
	if messages, err := mem.Load(core.WithSessionID(t.Context(), "s"), ""); err != nil || len(messages) != 4 {
		t.Errorf("the memory has %d messages, %v", len(messages), err)
	}
	said(t, saves, "s", "q q")
}

// Busy is for runs. Create and Delete wait for the session.
func TestSessions_busy_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Busy: lockedmemory.Refuse})
		for name, test := range map[string]func(ctx context.Context) error{
			"Create": func(ctx context.Context) error { return second(r.Sessions().Create(ctx, "agent")) },
			"Delete": func(ctx context.Context) error { return r.Sessions().Delete(ctx, "s") },
		} {
			lease := must2(r.Locker().Acquire(t.Context(), "s"))
			time.AfterFunc(time.Second, func() { _ = lease.Release(context.Background()) })
			start := time.Now()
			err := test(core.WithSessionID(t.Context(), "s"))
			took := time.Since(start).Round(time.Millisecond)
			if took != time.Second || errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("%s: after %s: %v", name, took, err)
			}
		}
	})
}

// A session belongs to one agent.
func TestRunner_sessionOfAnotherAgent_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newRunner(t, answers(echo), "mem://")
		other := newRunner(t, never("the session is another's"), "mem://", belugarunner.Options{AgentID: "another"})
		talk(t, first, "s", "q")
		for range 2 {
			refusedWith(t, second(say(t, t.Context(), other, "s", "q")), core.ErrInvalidInput, distlock.ErrInvalidOption)
		}
		said(t, first, "s", "q")
		// A session that names no agent is for all.
		must(t, second(first.Sessions().Create(core.WithSessionID(t.Context(), "open"), "")))
		answered(t, "answer to q")(say(t, t.Context(), first, "open", "q"))
		stored, err := first.Sessions().Get(t.Context(), "s")
		if err != nil || stored.AgentID != "agent" || stored.ID != "s" {
			t.Errorf("%+v, %v", stored, err)
		}
		refusedWith(t, second(say(t, t.Context(), first, "", "q")), core.ErrInvalidInput, distlock.ErrInvalidKey)
	})
}

// counters are those of requests and bytes in the statistics of Redis.
var counters = []*regexp.Regexp{regexp.MustCompile(`total_reads_processed:(\d+)`), regexp.MustCompile(`total_net_\w+_bytes:(\d+)`)}

// The first request of a run acquires the lock, the second reads the session. The third stores the session
// and releases the lock. A run costs the same at turn 20 and long after: requests, bytes between client and
// server, and memory.
func TestRunner_cost_staysTheSame(t *testing.T) {
	server := servers.StartRedis(t)
	r := newRunner(t, answers(echo), server.URL())
	spent := func() (all [3]int) {
		stats := must2(server.Do("INFO", "stats"))
		for i, counter := range counters {
			for _, n := range counter.FindAllStringSubmatch(stats, -1) {
				all[i] += must2(strconv.Atoi(n[1]))
			}
		}
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		all[2] = int(m.TotalAlloc)
		return all
	}
	const sampled, later = 20, 600
	turn := 0
	cost := func() (each [3]int) {
		begin := spent()
		for range sampled { // 16 turns of this size are more than the default of History
			talk(t, r, "s", fmt.Sprintf("%08d %s", turn, strings.Repeat("why? ", 200)))
			turn++
		}
		for i, end := range spent() {
			each[i] = (end - begin[i]) / sampled // so requests of the test and of renewals do not count
		}
		return each
	}
	cost() // it loads the scripts, too
	early := cost()
	var late [3]int
	for turn < later {
		late = cost()
	}
	if early[0] != 3 || late[0] != 3 || late[1] > early[1]*11/10 || late[2] > early[2]*13/10 {
		t.Errorf("requests, bytes and memory of a run are %d at turn 20, and %d at turn %d; want 3 requests", early, late, later)
	}
}

// A run reads the newest turns, and its Update leaves the others as they are.
func TestRunner_O_unreadTurns_stay(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		var seen []int
		change := func(s *runtime.Session) {}
		plugin := &hooks{before: func(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
			seen = append(seen, len(s.Turns))
			change(s)
			return input, nil
		}}
		r := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: "unread", History: 40, Plugins: []runtime.Plugin{plugin}})
		talk(t, r, "s", "0", "1", "2", "3", "4", "5") // 8 tokens for two messages, and about 4 for their texts
		if want := "[0 1 2 3 3 3]"; fmt.Sprint(seen) != want {
			t.Errorf("plugins have seen %v turns, want %s", seen, want)
		}
		after := func(input, want string) {
			t.Helper()
			talk(t, r, "s", input)
			said(t, r, "s", want)
		}
		change = func(s *runtime.Session) { s.Turns[0].Input = schema.NewHumanMessage("edited") }
		after("6", "0 1 2 edited 4 5 6")
		change = func(s *runtime.Session) { s.Turns = s.Turns[len(s.Turns)-1:] }
		after("7", "0 1 2 6 7")
		change = func(*runtime.Session) {}
		after("8", "0 1 2 6 7 8")
	})
}

func TestMaxTurns_keepsTheNewest(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		r := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: "max", MaxTurns: 3})
		for n := range 9 {
			talk(t, r, "s", fmt.Sprint(n))
		}
		said(t, r, "s", "5 6 7 8") // a run removes the turns before its own
		session := must2(r.Sessions().Get(t.Context(), "s"))
		if session.AgentID != "agent" || session.CreatedAt.IsZero() {
			t.Errorf("the session is %+v", session)
		}
	})
}
