package belugarunner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// steps is an agent that sends "one", waits until the test lets it go on, and sends "two" and done. If it is deaf,
// it ignores its context.
func steps(deaf bool) (emits, *thinks) {
	slow := newThinks()
	return emits{send: func(ctx context.Context, input string, yield func(agent.Event, error) bool) {
		if input != "steps" {
			yield(says("answer to "+input), nil)
			return
		}
		one := says("one")
		one.Metadata = map[string]any{"n": 1}
		yield(one, nil)
		close(slow.begun)
		ended := ctx.Done()
		if deaf {
			ended = nil
		}
		select {
		case <-slow.goOn:
		case <-ended:
			yield(agent.Event{}, ctx.Err())
			return
		}
		yield(says("two"), nil)
		for range 2 { // as a pipeline, which has one for each stage
			yield(agent.Event{Type: agent.EventDone, AgentID: "agent"}, nil)
		}
	}}, slow
}

// Each event comes when the agent sends it, and done when the turn is stored.
func TestStream_O_eventsAtOnce_doneWhenStored(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		a, slow := steps(false)
		r := newRunner(t, a, url, *belugarunner.WithStream())
		var got []string
		for event, err := range r.Run(t.Context(), "s", named("1", "steps")) {
			must(t, err)
			got = append(got, textOf(event))
			switch {
			case event.Text == "one": // the agent waits for this reader
				said(t, r, "s", "")
				close(slow.goOn)
			case event.Type == agent.EventDone:
				said(t, r, "s", "steps")
			}
		}
		if want := "text:one text:two done: done:"; strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
		tells(t, r, "s", named("1", "steps"), "text:onetwo done:onetwo")
		tells(t, r, "s", schema.NewHumanMessage("q"), "text:answer to q") // of an agent without done
	})
}

// No timer stands before an event, and a streamed run asks the server no more often.
func TestStream_C_isImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, emits{send: func(_ context.Context, _ string, yield func(agent.Event, error) bool) {
			for range 3 {
				time.Sleep(time.Second)
				yield(says("x"), nil)
			}
		}}, "mem://", belugarunner.Options{Stream: true, KeepPartial: true})
		began, n := time.Now(), time.Duration(0)
		for event, err := range r.Run(t.Context(), "s", schema.NewHumanMessage("q")) {
			n++
			if must(t, err); time.Since(began) != n*time.Second {
				t.Errorf("%+v comes after %s", event, time.Since(began))
			}
		}
	})
	server := servers.StartRedis(t)
	r := newRunner(t, answers(echo), server.URL(), belugarunner.Options{Stream: true, KeepPartial: true})
	talk(t, r, "s", "0", "1", "2")
	begin := requests(t, must2(server.Do("INFO", "stats")))
	for range 10 {
		talk(t, r, "s", "q")
	}
	if n := requests(t, must2(server.Do("INFO", "stats"))) - begin; n/10 != 3 {
		t.Errorf("10 runs have %d requests", n)
	}
}

// If the turn is not stored, the stream ends with the error, and without done.
func TestStream_N_refused(t *testing.T) {
	full := errors.New("the disk is full")
	onFakeTime(t, func(t *testing.T, p *place) {
		a, slow := steps(false)
		close(slow.goOn)
		p.sessions.fails = full
		r := must2(belugarunner.Over(a, p.newLocker(), &belugarunner.Options{Stream: true, SessionService: p.sessions}))
		got, err := told(t.Context(), r, p.session, schema.NewHumanMessage("steps"))
		if got != "text:one text:two" {
			t.Errorf("%q", got)
		}
		refusedWith(t, err, belugamemory.ErrOutcomeUnknown, full)
		r.AwaitWorkers()
	})
	both(t, func(t *testing.T, deaf bool) {
		synctest.Test(t, func(t *testing.T) {
			a, slow := steps(deaf)
			r := newRunner(t, a, "mem://", belugarunner.Options{Stream: true})
			go func() { <-slow.begun; lose(t, r.Locker(), "s") }()
			got, err := told(t.Context(), r, "s", schema.NewHumanMessage("steps"))
			if got != "text:one" {
				t.Errorf("%q", got)
			}
			refusedWith(t, err, belugamemory.ErrLockLost, distlock.ErrLost)
			close(slow.goOn)
			r.AwaitWorkers()
			said(t, r, "s", "")
		})
	})
}

// Another instance has answered the message, because the lease was lost: the stream ends with the loss.
func TestStream_N_answeredByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, slow := steps(true)
		r, other := newRunner(t, a, "mem://", *belugarunner.WithStream()), newRunner(t, answers(echo), "mem://")
		ended := begins(t, r, "s", named("1", "steps"))
		<-slow.begun
		lose(t, r.Locker(), "s")
		tells(t, other, "s", named("1", "steps"), "text:answer to steps")
		close(slow.goOn)
		got := <-ended
		if refusedWith(t, got.err, belugamemory.ErrLockLost, distlock.ErrLost); got.text != "text:one text:two" {
			t.Errorf("%q", got.text)
		}
		tells(t, r, "s", named("1", "steps"), "text:answer to steps done:answer to steps")
	})
}

// A plugin changes what is stored, and not what was streamed. A slow reader reads the events meanwhile.
func TestStream_plugin(t *testing.T) {
	t.Parallel()
	a, slow := steps(false)
	read, changed := make(chan struct{}), make(chan struct{})
	r := newRunner(t, a, "mem://", belugarunner.Options{Stream: true, Namespace: t.Name(), Plugins: []runtime.Plugin{&hooks{
		after: func(_ context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
			close(changed)
			for range 1000 { // a race, unless the reader has copies
				events[0].Metadata["n"] = 2
			}
			events[0].Text = "***"
			<-read
			return events, nil
		}}}})
	var got []string
	for event, err := range r.Run(t.Context(), "s", schema.NewHumanMessage("steps")) {
		must(t, err)
		if event.Text == "one" {
			close(slow.goOn)
			<-changed
			for range 1000 {
				if event.Metadata["n"] != 1 {
					t.Fatalf("%+v", event)
				}
			}
			close(read)
		}
		got = append(got, textOf(event))
	}
	if want := "text:one text:two done: done:"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if text := must2(r.Sessions().Get(t.Context(), "s")).Turns[0].Output.(*schema.AIMessage).Text(); text != "***two" {
		t.Errorf("stored %q", text)
	}
}

// A reader that leaves does not end its run, unless the run waits, or is a part of other work, or an option says so.
func TestStream_L_readerLeaves(t *testing.T) {
	for name, leave := range map[string]func(r *belugarunner.Runner, ctx context.Context, begun func()){
		"breaks": func(r *belugarunner.Runner, ctx context.Context, begun func()) {
			for range r.Run(ctx, "s", named("1", "steps")) {
				break
			}
		},
		"panics": func(r *belugarunner.Runner, ctx context.Context, begun func()) {
			defer func() { _ = recover() }()
			for range r.Run(ctx, "s", named("1", "steps")) {
				panic("the reader")
			}
		},
		"is cancelled": func(r *belugarunner.Runner, ctx context.Context, begun func()) {
			ctx, cancel := context.WithCancel(ctx)
			go func() { begun(); cancel() }()
			if _, err := told(ctx, r, "s", named("1", "steps")); !errors.Is(err, context.Canceled) {
				panic(err)
			}
		},
		"has a deadline": func(r *belugarunner.Runner, ctx context.Context, begun func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := told(ctx, r, "s", named("1", "steps")); !errors.Is(err, context.DeadlineExceeded) {
				panic(err)
			}
		},
	} {
		for place, test := range map[string]struct {
			opts   belugarunner.Options
			around string // "", "a turn" or "a run"
			stored string
		}{
			"goes on":       {opts: belugarunner.Options{}, stored: "steps"},
			"keeps":         {opts: belugarunner.Options{KeepPartial: true}, stored: "steps"},
			"EndWithReader": {opts: belugarunner.Options{EndWithReader: true}},
			"in a Do":       {around: "a turn"},
			"in a run":      {around: "a run"},
		} {
			both(t, func(t *testing.T, deaf bool) {
				t.Run(name+", "+place, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						steps, slow := steps(deaf)
						test.opts.Stream = true
						var r *belugarunner.Runner
						r = newRunner(t, emits{send: func(ctx context.Context, input string, yield func(agent.Event, error) bool) {
							if input == "outer" {
								leave(r, ctx, func() { <-slow.begun })
							}
							steps.send(ctx, input, yield)
						}}, "mem://", test.opts)
						switch test.around {
						case "":
							leave(r, t.Context(), func() { <-slow.begun })
						case "a turn":
							must(t, r.Locker().Do(t.Context(), "s", func(ctx context.Context) error {
								leave(r, ctx, func() { <-slow.begun })
								return nil
							}))
						case "a run":
							tells(t, r, "outer", schema.NewHumanMessage("outer"), "text:answer to outer")
						}
						close(slow.goOn)
						r.AwaitWorkers()
						said(t, r, "s", test.stored)
						want := "text:onetwo done:onetwo" // its message is answered once
						if test.stored == "" {
							want = "text:answer to q"
						}
						m := named("1", "q")
						tells(t, r, "s", m, want)
					})
				})
			})
		}
	}
}

// While a run waits, it ends with its reader, and its message is open.
func TestStream_L_waitingReaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, answers(echo), "mem://", *belugarunner.WithStream())
		lease := must2(r.Locker().Acquire(t.Context(), "s"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := told(ctx, r, "s", named("1", "q"))
		refusedWith(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
		r.AwaitWorkers()
		must(t, lease.Release(t.Context()))
		said(t, r, "s", "no session")
		tells(t, r, "s", named("1", "q"), "text:answer to q")
	})
}

// A run without its reader ends at MaxHold.
func TestStream_L_maxHold(t *testing.T) {
	both(t, func(t *testing.T, deaf bool) {
		synctest.Test(t, func(t *testing.T) {
			a, slow := steps(deaf)
			r := newRunner(t, a, "mem://", belugarunner.Options{Stream: true, MaxHold: time.Minute})
			for range r.Run(t.Context(), "s", named("1", "steps")) {
				break
			}
			if took := freeAfter(t, r, "s"); took != time.Minute {
				t.Errorf("free after %s", took)
			}
			close(slow.goOn)
			time.Sleep(time.Second)
			said(t, r, "s", "")
		})
	})
	synctest.Test(t, func(t *testing.T) { // one with its reader does not
		a, slow := steps(false)
		r := newRunner(t, a, "mem://", belugarunner.Options{Stream: true, MaxHold: time.Minute})
		time.AfterFunc(time.Hour, func() { close(slow.goOn) })
		tells(t, r, "s", named("1", "steps"), "text:one text:two done: done:")
	})
}

// A reader that never reads on holds neither the session nor the run.
func TestStream_L_stuckReader(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		stuck := make(chan struct{})
		r := newRunner(t, emits{send: func(_ context.Context, input string, yield func(agent.Event, error) bool) {
			for range 1000 {
				yield(says("x"), nil)
			}
		}}, url, *belugarunner.WithStream())
		ended := make(chan int)
		go func() {
			n := 0
			for range r.Run(t.Context(), "s", schema.NewHumanMessage("first")) {
				if n++; n == 1 {
					<-stuck
				}
			}
			ended <- n
		}()
		servers.Await(t, 10*time.Second, "the turn is stored", func() bool {
			session, err := r.Sessions().Get(t.Context(), "s")
			return err == nil && len(session.Turns) == 1
		})
		talk(t, r, "s", "next")
		said(t, r, "s", "first next")
		close(stuck)
		if n := <-ended; n != 1000 {
			t.Errorf("%d events", n)
		}
	})
}

// A stopped run has streamed what it stores.
func TestStream_O_stopped(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		both(t, func(t *testing.T, deaf bool) {
			session := fmt.Sprint(t.Name())
			a, slow := partly(deaf)
			r := newRunner(t, a, url, belugarunner.Options{Stream: true, KeepPartial: true, Interruptible: true})
			ended := begins(t, r, session, named("1", "long"))
			<-slow.begun
			if stored, err := r.StopMessage(t.Context(), session, "1", 5*time.Second); !stored || err != nil {
				t.Errorf("StopMessage: %t, %v", stored, err)
			}
			(<-ended).is(t, partial)
			tells(t, r, session, named("1", "long"), strings.Replace(kept, "text:one ", "text:one  ", 1))
			close(slow.goOn)
		})
	})
}

// Agents of Beluga are streamed. The readers of some leave.
func TestStream_onAgentsOfBeluga(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		r := newRunner(t, remembering(&asked{}, "Friday"), "mem://",
			belugarunner.Options{Stream: true, EndWithReader: ends, Namespace: fmt.Sprint(t.Name(), ends)})
		tells(t, r, "s", schema.NewHumanMessage("my order?"), `tool_call:1order{"id":"7"} tool_result:Friday text:re Friday done:re Friday`)
		for range r.Run(t.Context(), "s", schema.NewHumanMessage("my order?")) {
			break
		}
		r.AwaitWorkers()
	}
}
