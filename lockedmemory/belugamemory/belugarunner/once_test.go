package belugarunner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// named is a message with an ID.
func named(id any, text string) schema.Message {
	m := schema.NewHumanMessage(text)
	m.Metadata = map[string]any{"message_id": id}
	return m
}

// told returns the events of a run as text, and its error.
func told(ctx context.Context, r *belugarunner.Runner, session string, input schema.Message) (string, error) {
	var all []string
	for event, err := range r.Run(ctx, session, input) {
		if err != nil {
			return strings.Join(all, " "), err
		}
		all = append(all, textOf(event))
	}
	return strings.Join(all, " "), nil
}

func textOf(event agent.Event) string {
	text := fmt.Sprintf("%s:%s", event.Type, event.Text)
	if event.ToolCall != nil {
		text += event.ToolCall.ID + event.ToolCall.Name + event.ToolCall.Arguments
	}
	if event.ToolResult != nil {
		text += belugamemory.Codec{}.Text(&schema.ToolMessage{Parts: event.ToolResult.Content})
	}
	if event.Metadata["belugarunner.stopped"] == true {
		text += "(stopped)"
	}
	return text
}

func tells(t testing.TB, r *belugarunner.Runner, session string, input schema.Message, want string) {
	t.Helper()
	if got, err := told(t.Context(), r, session, input); got != want || err != nil {
		t.Errorf("the run yields %q, %v; want %q", got, err, want)
	}
}

// waits returns when a call waits for a session.
func waits(t testing.TB, r *belugarunner.Runner, session string) {
	t.Helper()
	servers.Await(t, 5*time.Second, "a run waits", func() bool {
		info, err := r.Locker().Inspect(t.Context(), session)
		return err == nil && info.Waiters > 0
	})
}

const replayed = "text:answer to q done:answer to q"

// A message that comes twice is answered once, by any instance. A repetition waits for the run under way.
func TestOnce_O_redelivery(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		for name, policy := range map[string]lockedmemory.BusyPolicy{
			"queue": lockedmemory.Queue, "refuse": lockedmemory.Refuse, "interrupt": lockedmemory.Interrupt} {
			t.Run(name, func(t *testing.T) {
				slow, asked := newThinks(), new(atomic.Int64)
				agent := answers(func(ctx context.Context, input string) (string, error) {
					asked.Add(1)
					return slow.agent(ctx, input)
				})
				a := newRunner(t, agent, url, belugarunner.Options{Busy: policy})
				b := newRunner(t, agent, url, belugarunner.Options{Busy: policy, TTL: time.Minute}) // not the Locker
				var all sync.WaitGroup
				all.Go(func() { tells(t, a, name, named("1", "q"), "text:answer to q") })
				<-slow.begun
				if policy == lockedmemory.Refuse {
					_, err := told(t.Context(), b, name, named("1", "q"))
					var busy *distlock.BusyError
					if !errors.As(err, &busy) || !busy.SameID {
						t.Errorf("%v; want a BusyError with SameID", err)
					}
				} else {
					all.Go(func() { tells(t, b, name, named("1", "q"), replayed) })
					waits(t, b, name)
				}
				close(slow.goOn)
				all.Wait()
				for _, r := range []*belugarunner.Runner{a, b, a} {
					tells(t, r, name, named("1", "q"), replayed)
				}
				said(t, b, name, "q")
				if asked.Load() != 1 {
					t.Errorf("the agent was asked %d times", asked.Load())
				}
			})
		}
	})
}

// The ID is in the record of the exchange, and nowhere else: not in the message that plugins, the agent and the
// session get, nor in runs inside. The message of the caller stays as it is.
func TestOnce_seenByNothing(t *testing.T) {
	t.Parallel()
	messages := []schema.Message{schema.NewHumanMessage("q"), schema.NewSystemMessage("q"), schema.NewAIMessage("q"), schema.NewToolMessage("call", "q")}
	for i, message := range messages {
		var seen map[string]any
		plugin := &hooks{before: func(_ context.Context, _ *runtime.Session, input schema.Message) (schema.Message, error) {
			seen = input.GetMetadata()
			return input, nil
		}}
		var inner *belugarunner.Runner
		r := newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
			talk(t, inner, "inner", "one", "one") // two runs without an ID
			return echo(ctx, input)
		}), "mem://", belugarunner.Options{Plugins: []runtime.Plugin{plugin}, Namespace: fmt.Sprint(t.Name(), i), MessageID: "id"})
		inner = newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: fmt.Sprint(t.Name(), i)})
		metadata := map[string]any{"id": "1", "message_id": 7}
		switch m := message.(type) {
		case *schema.HumanMessage:
			m.Metadata = metadata
		case *schema.SystemMessage:
			m.Metadata = metadata
		case *schema.AIMessage:
			m.Metadata = metadata
		case *schema.ToolMessage:
			m.Metadata = metadata
		}
		for range 2 {
			if text, err := told(t.Context(), r, "s", message); err != nil || !strings.HasPrefix(text, "text:answer to q") {
				t.Errorf("%q, %v", text, err)
			}
		}
		want := map[string]any{"message_id": 7}
		session := must2(r.Sessions().Get(t.Context(), "s"))
		if len(session.Turns) != 1 || !maps.Equal(session.Turns[0].Input.GetMetadata(), want) || !maps.Equal(seen, want) ||
			len(message.GetMetadata()) != 2 || fmt.Sprintf("%T", session.Turns[0].Input) != fmt.Sprintf("%T", message) {
			t.Errorf("%d turns, metadata %v; a plugin has seen %v", len(session.Turns), session.Turns[0].Input, seen)
		}
		said2 := must2(inner.Sessions().Get(t.Context(), "inner"))
		if len(said2.Turns) != 2 {
			t.Errorf("the session inside has %d turns", len(said2.Turns))
		}
	}
	r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: t.Name()})
	tells(t, r, "s", named("1", "q"), "text:answer to q")
	if session := must2(r.Sessions().Get(t.Context(), "s")); session.Turns[0].Input.GetMetadata() != nil {
		t.Errorf("the metadata is %v", session.Turns[0].Input.GetMetadata())
	}
}

// other is a message of another type.
type other struct{ schema.Message }

func TestOnce_refusesWrongIDs(t *testing.T) {
	t.Parallel()
	r := newRunner(t, never("the ID is wrong"), "mem://", belugarunner.Options{Namespace: t.Name()})
	for name, input := range map[string]schema.Message{"empty": named("", "q"), "long": named(strings.Repeat("x", 600), "q"),
		"a number": named(7, "q"), "nil": named(nil, "q"), "a type": other{named("1", "q")}} {
		if err := second(told(t.Context(), r, "s", input)); !errors.Is(err, core.NewError("", core.ErrInvalidInput, "", nil)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	said(t, r, "s", "no session")
}

// With a service of the application, the ID is metadata as any other.
func TestOnce_serviceOfTheApplication_readsNoID(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(echo)
		for range 2 {
			if err := second(run(t, t.Context(), a.Runner, p.session, named("1", "q"))); err != nil {
				t.Error(err)
			}
		}
		p.turns("q q")
		session := must2(p.sessions.SessionService.Get(t.Context(), p.session))
		if session.Turns[0].Input.GetMetadata()["message_id"] != "1" {
			t.Errorf("%+v", session.Turns[0].Input)
		}
	})
}

// through returns a URL whose connections go through a proxy.
func through(t *testing.T, to string) (string, *faultnet.Proxy) {
	t.Helper()
	u := must2(url.Parse(to))
	proxy := faultnet.New(t, u.Host)
	u.Host = proxy.Addr()
	return u.String(), proxy
}

// An instance dies at any request of a run: before the server has it, or after. The message is answered once, by
// the next instance, also if a plugin changes earlier turns. The State never counts a turn that is not there.
func TestOnce_O_killedAtEachRequest(t *testing.T) {
	postgres := migrated.Database(t, servers.SharedPostgres(t)).URL()
	edits := func(edit bool) []runtime.Plugin {
		return []runtime.Plugin{&hooks{
			before: func(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
				if edit && len(s.Turns) > 0 {
					s.Turns[0].Metadata = map[string]any{"edited": true}
				}
				return input, nil
			},
			after: func(_ context.Context, s *runtime.Session, events []agent.Event) ([]agent.Event, error) {
				n, _ := s.State["n"].(int)
				s.State["n"] = n + 1
				return events, nil
			}}}
	}
	for name, backend := range map[string]string{"redis": servers.SharedServer().URL(), "postgres": postgres} {
		for _, edit := range []bool{false, true} {
			for _, executed := range []bool{false, true} {
				for at := 1; at <= 4 || edit && at <= 6; at++ {
					session := fmt.Sprintf("killed-%s-%t-%t-%d", name, edit, executed, at)
					t.Run(session, func(t *testing.T) {
						t.Parallel()
						opts := belugarunner.Options{TTL: time.Second, Plugins: edits(false)}
						b := newRunner(t, answers(echo), backend, opts)
						tells(t, b, session, named("0", "before"), "text:answer to before")
						url, proxy := through(t, backend)
						opts.Plugins = edits(edit)
						a := newRunner(t, answers(echo), url, opts)
						var n atomic.Int64
						count := faultnet.Containing(session)
						held := proxy.HoldRequests(func(request []byte) bool {
							if !count(request) {
								return n.Load() > int64(at)
							}
							i := n.Add(1)
							return i > int64(at) || !executed && i == int64(at)
						})
						var dropped *faultnet.Dropped
						var m atomic.Int64
						if executed {
							dropped = proxy.DropReplies(func(request []byte) bool { return count(request) && m.Add(1) >= int64(at) })
						}
						ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
						defer cancel()
						err := second(told(ctx, a, session, named("1", "q")))
						if err == nil && !executed {
							t.Fatalf("the run has no error after %d requests", n.Load())
						}
						if errors.Is(err, distlock.ErrOutcomeUnknown) && !errors.Is(err, distlock.ErrLost) && !(core.IsRetryable(err) && belugamemory.Retryable(err)) {
							t.Errorf("not retryable: %v", err)
						}
						if got, err := told(t.Context(), b, session, named("1", "q")); err != nil || !strings.HasPrefix(got, "text:answer to q") {
							t.Errorf("the next instance: %q, %v", got, err)
						}
						tells(t, b, session, named("1", "q"), replayed)
						said(t, b, session, "before q")
						if stored := must2(b.Sessions().Get(t.Context(), session)); stored.State["n"] != 2 {
							t.Errorf("the State is %v", stored.State)
						}
						if dropped != nil {
							dropped.Stop()
						}
						held.Release()
					})
				}
			}
		}
	}
}

// If the answer to the write is lost, the same run again is safe, and its error says so.
func TestOnce_O_unknownOutcome_repeatable(t *testing.T) {
	for lost, again := range map[string]string{`"agent_id"`: "text:answer to q", "answer to q": replayed} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			url, proxy := through(t, servers.StartRedis(t).URL())
			r := newRunner(t, answers(echo), url, belugarunner.Options{TTL: time.Second, Namespace: "unknown"})
			tells(t, r, "first", named("1", "q"), "text:answer to q") // Redis has the scripts from now on
			dropped := proxy.DropReplies(faultnet.Containing(lost))
			err := second(told(t.Context(), r, "s", named("1", "q")))
			refusedWith(t, err, core.ErrProviderDown, distlock.ErrOutcomeUnknown)
			if !core.IsRetryable(err) || !belugamemory.Retryable(err) {
				t.Errorf("%v is not retryable", err)
			}
			dropped.Stop()
			tells(t, r, "s", named("1", "q"), again)
			said(t, r, "s", "q")
		})
	}
}

// A plugin that changes earlier turns takes their IDs from them. The changes and the answer are stored.
func TestOnce_O_editedTurns(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		plugin := &hooks{before: func(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
			if len(s.Turns) == 2 {
				s.Turns[0].Input = schema.NewHumanMessage("edited")
			}
			return input, nil
		}}
		r := newRunner(t, answers(echo), url, belugarunner.Options{Plugins: []runtime.Plugin{plugin}})
		for i, text := range []string{"one", "two", "three", "four"} {
			tells(t, r, "s", named(fmt.Sprint(i), text), "text:answer to "+text)
		}
		said(t, r, "s", "edited two three four")
		for i, want := range []error{lockedmemory.ErrAnswerGone, lockedmemory.ErrAnswerGone, nil, nil} {
			if err := second(told(t.Context(), r, "s", named(fmt.Sprint(i), "again"))); !errors.Is(err, want) {
				t.Errorf("message %d: %v, want %v", i, err, want)
			}
		}
		said(t, r, "s", "edited two three four")
	})
}

// A repetition gets the calls and results of tools, whether the model has a History or not.
func TestOnce_tools(t *testing.T) {
	t.Parallel()
	const call, result = `tool_call:1order{"id":"7"}`, "tool_result:Friday"
	for _, remembers := range []bool{true, false} {
		a := remembering(&asked{}, "Friday")
		if !remembers {
			a = agent.New("agent", agent.WithLLM(&asked{}), agent.WithTools(a.Tools()))
		}
		r := newRunner(t, a, "mem://", belugarunner.Options{Namespace: fmt.Sprint(t.Name(), remembers)})
		for range 2 {
			tells(t, r, "s", named("1", "my order?"), call+" "+result+" text:re Friday done:re Friday")
		}
		for event := range r.Run(t.Context(), "s", named("1", "my order?")) {
			if event.AgentID != "agent" {
				t.Errorf("%+v", event)
			}
		}
	}
}

// A session of another agent tells it nothing. Two sessions do not share their IDs.
func TestOnce_belongsToTheSessionAndItsAgent(t *testing.T) {
	t.Parallel()
	r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: t.Name()})
	tells(t, r, "one", named("1", "q"), "text:answer to q")
	tells(t, r, "two", named("1", "other"), "text:answer to other")
	another := newRunner(t, never("the session is another's"), "mem://", belugarunner.Options{Namespace: t.Name(), AgentID: "another"})
	refusedWith(t, second(told(t.Context(), another, "one", named("1", "q"))), core.ErrInvalidInput, distlock.ErrInvalidOption)
	must(t, r.Sessions().Delete(t.Context(), "one")) // and its IDs
	tells(t, r, "one", named("1", "q"), "text:answer to q")
}

// In a run or a Turn of its session, a known message is replayed, and a new one is refused in a run.
func TestOnce_insideItsSession(t *testing.T) {
	t.Parallel()
	var r *belugarunner.Runner
	r = newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
		if input == "outer" {
			got, err := told(ctx, r, "s", named("1", "q"))
			if got != replayed || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			refusedWith(t, second(told(ctx, r, "s", named("2", "q"))), core.ErrInvalidInput, distlock.ErrInvalidOption)
		}
		return echo(ctx, input)
	}), "mem://", belugarunner.Options{Namespace: t.Name()})
	tells(t, r, "s", named("1", "q"), "text:answer to q")
	tells(t, r, "s", named("3", "outer"), "text:answer to outer")
	must(t, r.Locker().Do(t.Context(), "s", func(ctx context.Context) error {
		for _, want := range []string{"text:answer to in", "text:answer to in done:answer to in"} {
			if got, err := told(ctx, r, "s", named("4", "in")); got != want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
		return nil
	}))
	said(t, r, "s", "q outer in")
}

// during is an Observer that calls a function at the end of each turn.
type during func()

func (d during) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (d during) End(_ context.Context, op *distlock.Operation) {
	if op.Name == lockedmemory.OpTurn && op.Err == nil {
		d()
	}
}

// A Shutdown that comes at the end of a replay changes nothing.
func TestOnce_shutdownAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *belugarunner.Runner
		armed := false
		over, cancel := context.WithCancel(t.Context())
		cancel()
		ends := during(func() {
			if armed {
				_ = r.Shutdown(over)
			}
		})
		r = newRunner(t, answers(echo), "mem://", belugarunner.Options{Observer: &ends})
		tells(t, r, "s", named("1", "q"), "text:answer to q")
		armed = true
		tells(t, r, "s", named("1", "q"), replayed)
		refusedByShutdown(t, r)
	})
}

// requests returns the number of requests in the statistics of a Redis.
func requests(t testing.TB, stats string) int {
	t.Helper()
	return must2(strconv.Atoi(counters[0].FindStringSubmatch(stats)[1]))
}

// A run with an ID costs one request more than one without, and a replay three. The stores of tools do not read
// the ID. Run 600 costs as much as run 20.
func TestOnce_roundTrips(t *testing.T) {
	server := servers.StartRedis(t)
	mem := must2(belugamemory.New(config.ProviderConfig{BaseURL: server.URL()}))
	defer mem.Close(context.Background())
	saves := false
	r := newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
		if saves {
			must(t, mem.Save(ctx, schema.NewHumanMessage("q"), schema.NewAIMessage("a")))
		}
		return echo(ctx, input)
	}), server.URL())
	n := 0
	cost := func(again bool) int {
		begin := must2(server.Do("INFO", "stats"))
		for range 20 {
			if !again {
				n++
			}
			must(t, second(told(t.Context(), r, "s", named(fmt.Sprint(n), strings.Repeat("why? ", 200)))))
		}
		return (requests(t, must2(server.Do("INFO", "stats"))) - requests(t, begin)) / 20
	}
	cost(false)
	early, replay := cost(false), cost(true)
	saves = true
	cost(false)
	tools := cost(false)
	saves = false
	for n < 600 {
		cost(false)
	}
	if late := cost(false); early != 4 || replay != 3 || tools != 5 || late != 4 {
		t.Errorf("a run has %d requests, at turn %d %d, with a Save of a tool %d, and a replay %d; want 4, 4, 5 and 3", early, n, late, tools, replay)
	}
}
