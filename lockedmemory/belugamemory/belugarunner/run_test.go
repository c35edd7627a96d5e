package belugarunner_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
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
		instances := []*instance{p.with(t, agent), p.with(t, agent)}
		var all sync.WaitGroup
		for n := range runs {
			all.Go(func() {
				input := strconv.Itoa(n)
				if answer, errs := p.say(t.Context(), instances[n%2], input); answer != "answer to "+input || errs != nil {
					t.Errorf("run %d: %q, %v", n, answer, errs)
				}
			})
		}
		all.Wait()
		if turns := strings.Fields(p.turns(t)); len(turns) != runs {
			t.Errorf("the turns %v, want %d", turns, runs)
		}
	})
}

func TestRun_N_lossCancelsTheRun(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		var cause error
		a := p.with(t, func(ctx context.Context, input string) (string, error) {
			p.lose(t)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			cause = context.Cause(ctx)
			return echo(ctx, input)
		})
		answer, errs := p.say(t.Context(), a, "q")
		if answer != "" || len(errs) != 1 {
			t.Fatalf("%q, %v; want one error", answer, errs)
		}
		refusedWith(t, errs[0], belugamemory.ErrLockLost, distlock.ErrLost)
		if !errors.Is(errs[0], context.Canceled) {
			t.Errorf("%v does not match the run's own error", errs[0])
		}
		a.AwaitWorkers()
		if !errors.Is(cause, distlock.ErrLost) {
			t.Errorf("the run's context ended by %v", cause)
		}
		if turns := p.turns(t); turns != "" {
			t.Errorf("a run without a lease has written %q", turns)
		}
	})
}

// The lock service may know the loss first. Then the release returns it.
func TestRun_N_lossIsFoundByTheRelease(t *testing.T) {
	onRedis(t, func(t *testing.T, p *place) {
		a := p.with(t, func(ctx context.Context, input string) (string, error) {
			p.lose(t)
			return echo(ctx, input)
		})
		answer, errs := p.say(t.Context(), a, "q")
		if answer != "" || len(errs) != 1 {
			t.Fatalf("%q, %v; want one error", answer, errs)
		}
		refusedWith(t, errs[0], belugamemory.ErrLockLost, distlock.ErrLost)
	})
}

// Beluga's Runner only logs the error of an Update.
func TestRun_N_yieldsTheErrorOfUpdate(t *testing.T) {
	full := errors.New("the disk is full")
	for name, test := range map[string]struct {
		fails, is error
		code      core.ErrorCode
	}{
		"the disk is full": {full, full, belugamemory.ErrOutcomeUnknown},
		"a retryable code of the service": {core.NewError("update", core.ErrProviderDown, "", full), full,
			belugamemory.ErrOutcomeUnknown},
		"a code of the service": {core.NewError("update", core.ErrNotFound, "", full), full, core.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				seen := new(outcomes)
				p.observer = seen
				p.sessions.fails = test.fails
				a := p.with(t, echo)
				answer, errs := p.say(t.Context(), a, "q")
				if answer != "" || len(errs) != 1 {
					t.Fatalf("the client got the answer %q and the errors %v; want one error, as no turn is stored", answer, errs)
				}
				refusedWith(t, errs[0], test.code, test.is)
				if got := seen.all(); !p.free(t, a) || p.turns(t) != "" || slices.Contains(got, distlock.OutcomeDone) {
					t.Errorf("the lock is free: %t; turns %q; outcomes %v", p.free(t, a), p.turns(t), got)
				}
			})
		})
	}
}

func TestRun_N_closeOfTheLockerEndsTheRun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		for name, obeys := range map[string]bool{
			"an agent that ends with its context": true, "an agent that ignores its context": false,
		} {
			var a *instance
			a = p.with(t, func(ctx context.Context, input string) (string, error) {
				closeLocker(t, a.locker)
				if obeys {
					<-ctx.Done()
					return "", ctx.Err()
				}
				return echo(ctx, input)
			})
			_, errs := p.say(t.Context(), a, "q")
			if len(errs) != 1 {
				t.Fatalf("%s: %v, want one error", name, errs)
			}
			refusedWith(t, errs[0], belugamemory.ErrShuttingDown, distlock.ErrClosed)
			if got := p.turns(t); got != "" {
				t.Errorf("%s: the turns are %q, want none", name, got)
			}
		}
	})
}

// The client of a slow stream holds no session.
func TestRun_L_slowReaderHoldsNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		a, b := p.with(t, echo), p.with(t, echo)
		for event, err := range a.Run(t.Context(), p.session, schema.NewHumanMessage("first")) {
			time.Sleep(time.Millisecond)
			if err != nil || event.Text != "answer to first" || !p.free(t, a) {
				t.Fatalf("event %v, error %v; the lock is free: %t, want it free", event, err, p.free(t, a))
			}
			succeeds(t)(p.say(t.Context(), b, "next"))
		}
		if got := p.turns(t); got != "first next" {
			t.Errorf("turns %q", got)
		}
	})
}

// The reader of an error may stall or cancel: the lease has ended before.
func TestRun_L_errorComesAfterTheRelease(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, func(context.Context, string) (string, error) { return "", errAgent })
		ctx, cancel := context.WithCancel(t.Context())
		for _, err := range a.Run(ctx, p.session, schema.NewHumanMessage("q")) {
			if err != errAgent || !p.free(t, a) {
				t.Errorf("error %v; the session is free: %t, want it free", err, p.free(t, a))
			}
			cancel()
		}
		cancel()
		if !p.free(t, a) {
			t.Error("the session of a run that has ended is held, as the reader of its error has cancelled")
		}
	})
}

func TestRun_busy(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		first := newThinks()
		a := p.with(t, first.agent)
		never := func(context.Context, string) (string, error) { panic("it has no lease") }
		brusque := p.with(t, never, belugarunner.Options{Busy: lockedmemory.Refuse})
		patient := p.with(t, never, belugarunner.Options{Wait: time.Minute})
		usual, late := p.with(t, never), p.with(t, never, belugarunner.Options{Wait: -1})
		var done sync.WaitGroup
		done.Go(func() { p.say(t.Context(), a, "q") })
		<-first.begun
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, test := range []struct {
			*instance
			waits time.Duration
		}{{brusque, 0}, {patient, time.Minute}, {usual, 5 * time.Minute}, {late, 54 * time.Minute}} {
			start := time.Now()
			_, errs := p.say(ctx, test.instance, "q")
			if took := time.Since(start); len(errs) != 1 || took != test.waits {
				t.Fatalf("after %s: %v; want one error after %s", took, errs, test.waits)
			}
			refusedWith(t, errs[0], core.ErrTimeout, distlock.ErrNotAcquired)
			var busy *distlock.BusyError
			if !errors.As(errs[0], &busy) || busy.Self {
				t.Errorf("%v has no BusyError", errs[0])
			}
			if !core.IsRetryable(errs[0]) {
				t.Errorf("%v is not retryable", errs[0])
			}
		}
		close(first.goOn)
		done.Wait()
	})
}

func TestRun_endedContext_doesNotRun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, func(context.Context, string) (string, error) { panic("its context has ended") })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if answer, errs := p.say(ctx, a, "q"); answer != "" || len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
			t.Errorf("%q, %v", answer, errs)
		}
		if !p.free(t, a) {
			t.Error("the lock stands")
		}
	})
}

// Callers iterate concurrently, repeatedly, or not at all.
func TestRun_everyIterationIsARun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, echo)
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
		next, stop := iter.Pull2(a.Run(t.Context(), p.session, schema.NewHumanMessage("pulled")))
		if event, err, ok := next(); event.Text != "answer to pulled" || err != nil || !ok {
			t.Errorf("%q, %v, %t", event.Text, err, ok)
		}
		synctest.Wait()
		stop()
		if got := p.turns(t); got != "q q q pulled" || !p.free(t, a) {
			t.Errorf("the turns %q; the lock is free: %t", got, p.free(t, a))
		}
	})
}

func second[T any](_ T, err error) error { return err }
