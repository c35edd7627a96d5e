package belugarunner_test

import (
	"context"
	"errors"
	"io"
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

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

func TestLockRun_S1_runsFollowEachOther(t *testing.T) {
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

// Without the lock, the test above fails.
func TestScripted_losesTurnsWithoutALock(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		runner := &scripted{sessions: p.sessions, agent: func(ctx context.Context, input string) (string, error) {
			time.Sleep(5 * time.Millisecond)
			return echo(ctx, input)
		}}
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				for range runner.Run(t.Context(), p.session, strconv.Itoa(n)) {
				}
			})
		}
		all.Wait()
		if turns := strings.Fields(p.turns(t)); len(turns) != 1 {
			t.Errorf("the turns %v: this runner does not lose what Beluga's does", turns)
		}
	})
}

func TestLockRun_S1_sessionsAreIndependent(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		first := newThinks()
		a := p.with(t, first.agent)
		go p.say(t.Context(), a, "long")
		<-first.begun
		b := p.with(t, echo)
		for _, err := range b.locked(core.WithTenant(t.Context(), "another"), p.session, "short") {
			if err != nil {
				t.Error(err)
			}
		}
		if got := p.turns(t); got != "short" {
			t.Errorf("the turns %q", got)
		}
		close(first.goOn)
	})
}

func TestLockRun_N_lossCancelsTheRun(t *testing.T) {
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
		a.workers.Wait()
		if !errors.Is(cause, distlock.ErrLost) {
			t.Errorf("the run's context ended by %v", cause)
		}
		if turns := p.turns(t); turns != "" {
			t.Errorf("a run without a lease has written %q", turns)
		}
	})
}

// A run that ignores the loss of its lease yields ErrLost at its end, once.
func TestLockRun_N_unnoticedLoss_yieldedAtEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		locker := p.newLocker(t, distlock.Options{TTL: leaseTTL})
		for name, events := range map[string][]error{
			"without an error": nil, "with an error": {errAgent}, "an error after it": {errAgent, io.EOF},
		} {
			run := func(ctx context.Context, _ string, _ int) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) {
					for n, err := range events {
						if !yield(n, err) {
							return
						}
					}
					p.lose(t)
					<-ctx.Done()
				}
			}
			locked, err := belugarunner.LockRun(locker, run)
			must(t, err)
			var errs []error
			for _, err := range locked(t.Context(), name, 0) {
				errs = append(errs, err)
			}
			if len(errs) != len(events)+1 || !slices.Equal(errs[:len(events)], events) {
				t.Fatalf("%s: %v, want those of the run and one more", name, errs)
			}
			refusedWith(t, errs[len(events)], belugamemory.ErrLockLost, distlock.ErrLost)
		}
	})
}

// The lock service may know the loss first. Then the release returns it.
func TestLockRun_N_lossIsFoundByTheRelease(t *testing.T) {
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
func TestLockRun_N_yieldsTheErrorOfUpdate(t *testing.T) {
	full := errors.New("the disk is full")
	for name, test := range map[string]struct {
		fails, is error
		code      core.ErrorCode
	}{
		"the disk is full": {full, full, belugamemory.ErrOutcomeUnknown},
		"a retryable code of the service": {core.NewError("update", core.ErrProviderDown, "", full), full,
			belugamemory.ErrOutcomeUnknown},
		"a code of the service": {core.NewError("update", core.ErrNotFound, "", full), full, core.ErrNotFound},
		"refused":               {nil, distlock.ErrNotHeld, core.ErrInvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				seen := new(outcomes)
				p.observer = seen
				p.sessions.fails = test.fails
				a := p.with(t, echo)
				if test.fails == nil {
					a.after = func(ctx context.Context) { must(t, p.change(ctx, t, a.sessions)) } // the first of two
				}
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

// After a break, the stream must not yield: Go panics.
func TestLockRun_breakAfterLoss(t *testing.T) {
	for _, at := range []string{"an event", "the error"} {
		t.Run(at, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				a := p.with(t, func(ctx context.Context, input string) (string, error) {
					if at == "the error" {
						p.lose(t)
						<-ctx.Done()
					}
					return echo(ctx, input)
				})
				for _, err := range a.locked(t.Context(), p.session, "q") {
					if at == "an event" {
						p.lose(t)
						time.Sleep(time.Minute)
					} else {
						refusedWith(t, err, belugamemory.ErrLockLost, distlock.ErrLost)
					}
					break
				}
			})
		})
	}
}

func TestLockRun_N_closeOfTheLockerEndsTheRun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		for name, obeys := range map[string]bool{
			"a run that ends with its context": true, "a run that ignores its context": false,
		} {
			a := p.with(t, nil)
			run := func(ctx context.Context, _, _ string) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					closeLocker(t, a.locker)
					if obeys {
						<-ctx.Done()
						yield("", ctx.Err())
					}
				}
			}
			locked, err := belugarunner.LockRun(a.locker, run)
			must(t, err)
			var errs []error
			for _, err := range locked(t.Context(), p.session, "q") {
				errs = append(errs, err)
			}
			if len(errs) != 1 {
				t.Fatalf("%s: %v, want one error", name, errs)
			}
			refusedWith(t, errs[0], belugamemory.ErrShuttingDown, distlock.ErrClosed)
		}
	})
}

// The run's own release after Update is no loss and does not cancel the context.
func TestLockRun_L_slowReaderHoldsNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		a, b := p.with(t, nil), p.with(t, echo)
		var run context.Context
		a.agent = func(ctx context.Context, input string) (string, error) { run = ctx; return echo(ctx, input) }
		var events []string
		for event, err := range a.locked(t.Context(), p.session, "first") {
			time.Sleep(time.Millisecond)
			if events = append(events, event); err != nil || run.Err() != nil || !p.free(t, a) {
				t.Fatalf("event %q, error %v; the run's context has %v; the lock is free: %t, want it free", event, err,
					run.Err(), p.free(t, a))
			}
			if _, errs := p.say(t.Context(), b, "next"); errs != nil {
				t.Error(errs)
			}
		}
		if got := p.turns(t); len(events) != 3 || got != "first next next next" {
			t.Errorf("events %q, turns %q", events, got)
		}
	})
}

// A run without an Update holds its lease until it returns.
func TestLockRun_L_breakReleasesAtOnce(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, nil)
		run := func(context.Context, string, int) iter.Seq2[int, error] {
			return slices.All([]error{errAgent, errAgent})
		}
		for range must2(belugarunner.LockRun(a.locker, run))(t.Context(), p.session, 0) {
			if p.free(t, a) {
				t.Error("the lock is free inside the run")
			}
			break
		}
		if !p.free(t, a) {
			t.Error("the lock stands after the loop")
		}
	})
}

// The reader of an error may stall or cancel: the lease has ended before.
func TestLockRun_L_errorComesAfterTheRelease(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, func(context.Context, string) (string, error) { return "", errAgent })
		ctx, cancel := context.WithCancel(t.Context())
		for _, err := range a.locked(ctx, p.session, "q") {
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

func TestLockRun_L_panicReleases(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		seen := new(outcomes)
		p.observer = seen
		a := p.with(t, echo)
		broken, err := belugarunner.LockRun(a.locker,
			func(context.Context, string, string) iter.Seq2[string, error] { panic("boom") })
		must(t, err)
		for name, work := range map[string]func(){
			"the loop": func() {
				for range a.locked(t.Context(), p.session, "q") {
					panic("boom")
				}
			},
			"the run": func() {
				for range broken(t.Context(), p.session, "q") {
					t.Error("an event")
				}
			},
		} {
			func() {
				defer func() {
					if recovered := recover(); recovered != "boom" {
						t.Errorf("%s: the panic became %v", name, recovered)
					}
				}()
				work()
			}()
			if !p.free(t, a) {
				t.Fatalf("%s: the lock stands", name)
			}
		}
		if got := seen.all(); !slices.Equal(got, []distlock.Outcome{distlock.OutcomeFailed, distlock.OutcomeFailed}) {
			t.Errorf("outcomes %v", got)
		}
	})
}

func TestLockRun_busy(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		first := newThinks()
		a := p.with(t, first.agent)
		never := func(context.Context, string) (string, error) { panic("it has no lease") }
		brusque := p.with(t, never, belugarunner.WithBusy(lockedmemory.Refuse))
		patient := p.with(t, never, belugarunner.WithWait(time.Minute))
		usual, late := p.with(t, never), p.with(t, never, belugarunner.WithWait(-1))
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

func TestLockRun_withoutSession_refused(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, func(context.Context, string) (string, error) { panic("it has no session") })
		p.session = ""
		// The context names another session.
		answer, errs := p.say(core.WithSessionID(t.Context(), "other"), a, "q")
		if answer != "" || len(errs) != 1 {
			t.Fatalf("%q, %v", answer, errs)
		}
		refusedWith(t, errs[0], core.ErrInvalidInput, distlock.ErrInvalidKey)
	})
}

func TestLockRun_endedContext_doesNotRun(t *testing.T) {
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

// Callers use the result of LockRun like Run: concurrently, repeatedly, or without iterating.
func TestLockRun_everyIterationIsARun(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, echo)
		a.locked(t.Context(), p.session, "never")
		events := a.locked(t.Context(), p.session, "q")
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for range events {
				}
			})
		}
		all.Wait()
		next, stop := iter.Pull2(a.locked(t.Context(), p.session, "pulled"))
		if event, err, ok := next(); event != "answer" || err != nil || !ok {
			t.Errorf("%q, %v, %t", event, err, ok)
		}
		synctest.Wait()
		stop()
		if got := p.turns(t); got != "q q q pulled" || !p.free(t, a) {
			t.Errorf("the turns %q; the lock is free: %t", got, p.free(t, a))
		}
	})
}

func TestLockRun_refusesNilsAndOptions(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		locker, run := p.newLocker(t, distlock.Options{}), (&scripted{}).Run
		for name, make := range map[string]func() error{
			"no Locker": func() error { return second(belugarunner.LockRun(nil, run)) },
			"no run":    func() error { return second(belugarunner.LockRun[string, string](locker, nil)) },
			"of sessions": func() error {
				return second(belugarunner.NewSessionService(nil, locker, belugarunner.WithBusy(lockedmemory.Refuse)))
			},
			"no service":          func() error { return second(belugarunner.WrapSessions(nil, locker)) },
			"sessions, no Locker": func() error { return second(belugarunner.WrapSessions(p.sessions, nil)) },
			"sessions, of a run": func() error {
				return second(belugarunner.WrapSessions(p.sessions, locker, belugarunner.WithMaxHold(1)))
			},
		} {
			t.Log(name)
			refusedWith(t, make(), core.ErrInvalidInput, distlock.ErrInvalidOption)
		}
	})
}

func second[T any](_ T, err error) error { return err }
