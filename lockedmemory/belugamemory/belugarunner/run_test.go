package belugarunner_test

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

func TestRun_S1_runsFollowEachOther(t *testing.T) {
	const runs = 8
	everywhere(t, func(t *testing.T, p *place) {
		var inside atomic.Int32
		agent := func(ctx context.Context, input string) (string, error) {
			if inside.Add(1) != 1 {
				t.Error("two runs of one session at once")
			}
			defer inside.Add(-1)
			time.Sleep(5 * time.Millisecond)
			return echo(ctx, input)
		}
		instances := []*instance{p.with(agent), p.with(agent)}
		var all sync.WaitGroup
		for n := range runs {
			input := strconv.Itoa(n)
			all.Go(func() { answered(t, "answer to "+input)(p.say(t.Context(), instances[n%2], input)) })
		}
		all.Wait()
		if stored := must2(p.sessions.SessionService.Get(t.Context(), p.session)); len(stored.Turns) != runs {
			t.Errorf("%d turns, want %d", len(stored.Turns), runs)
		}
	})
}

func TestRun_N_lossCancelsTheRun(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		var cause error
		a := p.with(func(ctx context.Context, input string) (string, error) {
			p.lose()
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			cause = context.Cause(ctx)
			return echo(ctx, input)
		})
		_, err := p.say(t.Context(), a, "q")
		refusedWith(t, err, belugamemory.ErrLockLost, distlock.ErrLost)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not match the run's own error", err)
		}
		a.AwaitWorkers()
		if !errors.Is(cause, distlock.ErrLost) {
			t.Errorf("the run's context ended by %v", cause)
		}
		p.turns("")
		p.observer.are(t, distlock.OutcomeLost)
	})
}

// The lock service may know the loss first. Then the release returns it.
func TestRun_N_lossIsFoundByTheRelease(t *testing.T) {
	onRedis(t, func(t *testing.T, p *place) {
		a := p.with(func(ctx context.Context, input string) (string, error) {
			p.lose()
			return echo(ctx, input)
		})
		p.refused(t.Context(), a, belugamemory.ErrLockLost, distlock.ErrLost)
	})
}

// Beluga's Runner only logs the error of an Update.
func TestRun_N_yieldsTheErrorOfUpdate(t *testing.T) {
	full := errors.New("the disk is full")
	for name, test := range map[string]struct {
		fails error
		code  core.ErrorCode
	}{
		"the disk is full":                {full, belugamemory.ErrOutcomeUnknown},
		"a retryable code of the service": {core.NewError("update", core.ErrProviderDown, "", full), belugamemory.ErrOutcomeUnknown},
		"a code of the service":           {core.NewError("update", core.ErrNotFound, "", full), core.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				p.sessions.fails = test.fails
				a := p.with(echo)
				p.refused(t.Context(), a, test.code, full)
				p.observer.are(t, distlock.OutcomeFailed)
				p.turns("")
				p.isFree(a, true)
			})
		})
	}
}

// Beluga's plugin for retries hides errors: its Runner then yields an empty event.
func TestRun_N_hiddenError_yieldsNoEvent(t *testing.T) {
	limit := core.NewError("model", core.ErrRateLimit, "", errAgent)
	limited := func(context.Context, string) (string, error) { return "", limit }
	failing := func(context.Context) error { return errAgent }
	for name, test := range map[string]struct {
		agent  answers
		get    error
		plugin *hooks
		create bool
		code   core.ErrorCode
		cause  error // nil: it is unknown
	}{
		"of an agent":               {agent: limited, plugin: &hooks{}, code: core.ErrRateLimit, cause: errAgent},
		"of a new session's agent":  {agent: limited, plugin: &hooks{}, create: true, code: core.ErrRateLimit, cause: errAgent},
		"of Get":                    {agent: echo, plugin: &hooks{}, get: limit, code: core.ErrRateLimit, cause: errAgent},
		"unknown":                   {agent: echo, plugin: after(failing), code: core.ErrInvalidInput},
		"unknown, of a new session": {agent: echo, plugin: before(failing), create: true, code: core.ErrInvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				test.plugin.hides = true
				a := p.with(test.agent, belugarunner.Options{Plugins: []runtime.Plugin{test.plugin}})
				session := p.session
				if test.create {
					p.session = "unknown"
				}
				if test.get != nil {
					p.sessions.get = func(context.Context, string) (*runtime.Session, error) { return nil, test.get }
				}
				_, err := p.say(t.Context(), a, "q")
				p.session = session
				p.turns("")
				p.observer.are(t, distlock.OutcomeFailed)
				refusedWith(t, err, test.code, cmp.Or(test.cause, err))
				if errors.Is(err, core.NewError("", core.ErrNotFound, "", nil)) {
					t.Errorf("%v names the Get that comes before a Create", err)
				}
			})
		})
	}
}

func TestRun_N_closeOfTheLockerEndsTheRun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		p.observer = nil // the lease ends a moment before its context: in some of these runs, Update comes between
		for n := range 20 {
			var a *instance
			a = p.with(func(ctx context.Context, input string) (string, error) {
				closeLocker(t, a.locker)
				if n%2 == 0 {
					<-ctx.Done()
					return "", ctx.Err()
				}
				return echo(ctx, input)
			})
			p.refused(t.Context(), a, belugamemory.ErrShuttingDown, distlock.ErrClosed)
			a.AwaitWorkers()
			p.turns("")
		}
	})
}

// The client of a slow stream holds no session.
func TestRun_L_slowReaderHoldsNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		a, b := p.with(echo), p.with(echo)
		for event, err := range a.Run(t.Context(), p.session, schema.NewHumanMessage("first")) {
			time.Sleep(time.Millisecond)
			if err != nil || event.Text != "answer to first" || !p.free(a) {
				t.Fatalf("event %v, error %v; the lock is free: %t, want it free", event, err, p.free(a))
			}
			p.talk(b, "next")
		}
		p.turns("first next")
	})
}

// The reader of an error may stall or cancel: the lease has ended before.
func TestRun_L_errorComesAfterTheRelease(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(fails)
		ctx, cancel := context.WithCancel(t.Context())
		for _, err := range a.Run(ctx, p.session, schema.NewHumanMessage("q")) {
			if err != errAgent || !p.free(a) {
				t.Errorf("error %v; the session is free: %t, want it free", err, p.free(a))
			}
			cancel()
		}
		cancel()
		p.isFree(a, true)
	})
}

func TestRun_busy(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		first, never := newThinks(), never("it has no lease")
		a := p.with(first.agent)
		var done sync.WaitGroup
		done.Go(func() { p.talk(a, "q") })
		<-first.begun
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, test := range []struct {
			opts  belugarunner.Options
			waits time.Duration
		}{
			{belugarunner.Options{Busy: lockedmemory.Refuse}, 0},
			{belugarunner.Options{Wait: time.Minute}, time.Minute},
		} {
			start := time.Now()
			_, err := p.say(ctx, p.with(never, test.opts), "q")
			if took := time.Since(start); took != test.waits {
				t.Fatalf("after %s: %v; want %s", took, err, test.waits)
			}
			refusedWith(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
			var busy *distlock.BusyError
			if !errors.As(err, &busy) || busy.Self || !core.IsRetryable(err) {
				t.Errorf("%v has no BusyError, or is not retryable", err)
			}
		}
		close(first.goOn)
		done.Wait()
	})
}

// Callers iterate concurrently, repeatedly, or not at all.
func TestRun_everyIterationIsARun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(echo)
		a.Run(t.Context(), p.session, schema.NewHumanMessage("never"))
		events := a.Run(t.Context(), p.session, schema.NewHumanMessage("q"))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for range events {
				}
			})
		}
		all.Wait()
		p.turns("q q q")
		p.isFree(a, true)
	})
}

// The lease belongs to the run's ID, so a run of another ID may not write the session.
func TestOwnService_S1_anotherID_refused(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a, session := p.with(echo), p.session
		p.sessions.get = func(ctx context.Context, _ string) (*runtime.Session, error) {
			return p.sessions.SessionService.Get(ctx, session)
		}
		p.session = "another ID"
		p.refused(t.Context(), a, core.ErrInvalidInput, distlock.ErrInvalidOption)
	})
}

// A service may create a session with another ID, as that of Beluga does. The run stores its turn there.
func TestOwnService_createsAnotherID(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		p.session = "unknown"
		a, updates := p.with(echo), 0
		p.sessions.updated = func() { updates++ }
		if p.talk(a, "q"); updates != 1 || !p.free(a) {
			t.Errorf("%d Updates; the lock is free: %t", updates, p.free(a))
		}
		p.observer.are(t, distlock.OutcomeDone)
	})
}

func TestOwnService_errors_unchanged(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		p.sessions.get = func(context.Context, string) (*runtime.Session, error) { return nil, errAgent }
		if _, err := p.say(t.Context(), p.with(echo), "q"); err != errAgent {
			t.Errorf("%v", err)
		}
	})
}
