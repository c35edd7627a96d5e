package belugarunner_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// stopping is a Shutdown under way.
type stopping chan error

func stop(ctx context.Context, r *belugarunner.Runner) stopping {
	s := make(stopping, 1)
	go func() { s <- r.Shutdown(ctx) }()
	synctest.Wait()
	return s
}

// waits reports whether the Shutdown still waits.
func (s stopping) waits() bool { synctest.Wait(); return len(s) == 0 }

func (s stopping) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-s:
		must(t, err)
	case <-time.After(time.Second):
		t.Error("Shutdown waits")
	}
}

// refusedByShutdown checks the error of a run after a Shutdown: another instance can do it.
func refusedByShutdown(t *testing.T, errs []error) {
	t.Helper()
	if len(errs) != 1 {
		t.Fatalf("%v, want one error", errs)
	}
	refusedWith(t, errs[0], belugamemory.ErrShuttingDown, distlock.ErrClosed)
	if belugamemory.Retryable(errs[0]) {
		t.Errorf("%v is retryable on this instance", errs[0])
	}
}

func TestShutdown_refusesNewRuns(t *testing.T) {
	onMem(t, func(t *testing.T) {
		other := newRunner(t, answers(echo), "mem://")
		r := newRunner(t, answers(func(context.Context, string) (string, error) { panic("it was shut down") }), "mem://")
		before := r.Run(t.Context(), "s", schema.NewHumanMessage("q"))
		must(t, r.Shutdown(t.Context()))
		for range 50 {
			var errs []error
			for _, err := range before {
				errs = append(errs, err)
			}
			refusedByShutdown(t, errs)
			_, errs = say(t.Context(), r, "s", "q")
			refusedByShutdown(t, errs)
		}
		if answer, errs := say(t.Context(), other, "s", "q"); answer != "answer to q" || errs != nil {
			t.Errorf("another Runner: %q, %v", answer, errs)
		}
		must(t, r.Shutdown(t.Context()))
		refusedWith(t, r.Start(t.Context()), belugamemory.ErrShuttingDown, distlock.ErrClosed)
	})
}

// Shutdown ends the runs that wait for their session, and waits for the run that has it.
func TestShutdown_endsWaiters(t *testing.T) {
	onMem(t, func(t *testing.T) {
		slow := newThinks()
		r := newRunner(t, answers(slow.agent), "mem://")
		var all sync.WaitGroup
		all.Go(func() {
			if answer, errs := say(t.Context(), r, "s", "q"); answer != "answer to q" || errs != nil {
				t.Errorf("the run under way: %q, %v", answer, errs)
			}
		})
		<-slow.begun
		for range 3 {
			all.Go(func() {
				_, errs := say(t.Context(), r, "s", "waits")
				refusedByShutdown(t, errs)
			})
		}
		synctest.Wait()
		start := time.Now()
		first, second := stop(t.Context(), r), stop(t.Context(), r)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if !first.waits() || !second.waits() {
			t.Error("Shutdown does not wait for the run under way")
		}
		close(slow.goOn)
		all.Wait()
		first.ends(t)
		second.ends(t)
	})
}

// A caller that has gone does not learn that another instance could do the run.
func TestShutdown_callerHasGone(t *testing.T) {
	onMem(t, func(t *testing.T) {
		slow := newThinks()
		r := newRunner(t, answers(slow.agent), "mem://")
		go say(t.Context(), r, "s", "q")
		<-slow.begun
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		for range 50 {
			waiters.Go(func() {
				if _, errs := say(ctx, r, "s", "waits"); len(errs) != 1 || !errors.Is(errs[0], context.Canceled) || core.IsRetryable(errs[0]) {
					t.Errorf("%v", errs)
				}
			})
		}
		synctest.Wait()
		cancel()
		if err := r.Shutdown(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Shutdown: %v", err)
		}
		waiters.Wait()
		close(slow.goOn)
	})
}

// The worker of a cancelled run counts, also without a lease of its own, and a slow reader does not.
func TestShutdown_waitsForWorkers(t *testing.T) {
	for name, test := range map[string]struct {
		opts   belugarunner.Options
		within bool // a Do of the session
		loses  bool // the lease, once the run has returned
		takes  time.Duration
	}{
		"that linger":   {takes: time.Hour, opts: belugarunner.Options{MaxHold: 2 * time.Hour}},
		"until MaxHold": {takes: time.Minute, opts: belugarunner.Options{MaxHold: time.Minute}},
		"until MaxHold after a loss": {takes: time.Minute, loses: true,
			opts: belugarunner.Options{MaxHold: time.Minute}},
		"of a run inside a Do": {takes: time.Hour, within: true, opts: belugarunner.Options{MaxHold: 2 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			onMem(t, func(t *testing.T) {
				slow := newThinks()
				r := newRunner(t, answers(slow.agent), "mem://", test.opts)
				run := func(ctx context.Context) error {
					ctx, cancel := context.WithCancel(ctx)
					go func() { <-slow.begun; cancel() }()
					_, errs := say(ctx, r, "s", "q")
					return errors.Join(errs...)
				}
				var err error
				if test.within {
					err = r.Locker().Do(t.Context(), "s", run)
				} else {
					err = run(t.Context())
				}
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if test.loses {
					lose(t, r.Locker(), "s")
				}
				shutdown := stop(t.Context(), r)
				time.AfterFunc(time.Hour, func() { close(slow.goOn) })
				time.Sleep(test.takes - time.Second)
				if !shutdown.waits() {
					t.Error("Shutdown has ended before the worker")
				}
				time.Sleep(2 * time.Second)
				shutdown.ends(t)
				time.Sleep(time.Hour)
			})
		})
	}
	t.Run("but not for readers", func(t *testing.T) {
		onMem(t, func(t *testing.T) {
			r := newRunner(t, answers(echo), "mem://")
			for range r.Run(t.Context(), "s", schema.NewHumanMessage("q")) {
				must(t, r.Shutdown(t.Context()))
			}
		})
	})
}

// lose takes a lock away from its holder, as an operator does.
func lose(t *testing.T, l *distlock.Locker, key string) {
	t.Helper()
	info, err := l.Inspect(context.Background(), key)
	must(t, err)
	name, breaker := driver.Name{Namespace: fencing.Options(l).Namespace, Key: key}, fencing.Driver(l).(driver.Breaker)
	if broken, err := breaker.Break(context.Background(), name, info.Fence); !broken || err != nil {
		t.Errorf("the lock was broken: %t, %v", broken, err)
	}
}

// Whatever ends a run, it is not open after that.
func TestShutdown_everyEndCounts(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, r *belugarunner.Runner){
		"a busy session": func(t *testing.T, r *belugarunner.Runner) {
			must(t, r.Locker().Do(t.Context(), "s", func(context.Context) error {
				_, errs := say(t.Context(), r, "s", "q")
				refusedWith(t, errors.Join(errs...), core.ErrTimeout, distlock.ErrNotAcquired)
				return nil
			}))
		},
		"no session": func(t *testing.T, r *belugarunner.Runner) { say(t.Context(), r, "", "q") },
		"an error":   func(t *testing.T, r *belugarunner.Runner) { say(t.Context(), r, "s", "fail") },
		"its end":    func(t *testing.T, r *belugarunner.Runner) { say(t.Context(), r, "s", "q") },
		"inside a Do": func(t *testing.T, r *belugarunner.Runner) {
			must(t, r.Locker().Do(t.Context(), "s", func(ctx context.Context) error { say(ctx, r, "s", "q"); return nil }))
		},
		"a panic of its reader": func(t *testing.T, r *belugarunner.Runner) {
			defer func() { _ = recover() }()
			for range r.Run(t.Context(), "s", schema.NewHumanMessage("fail")) {
				panic("the reader")
			}
		},
		"a lease that the agent has released": func(t *testing.T, r *belugarunner.Runner) {
			if _, errs := say(t.Context(), r, "s", "release"); len(errs) != 1 || errs[0] == nil {
				t.Errorf("%v, want one error", errs)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onMem(t, func(t *testing.T) {
				var r *belugarunner.Runner
				r = newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
					switch input {
					case "fail":
						return "", errAgent
					case "release":
						lease, _ := r.Locker().FromContext(ctx, "s")
						must(t, lease.Release(ctx))
					}
					return input, nil
				}), "mem://", belugarunner.Options{Busy: lockedmemory.Refuse})
				run(t, r)
				stop(t.Context(), r).ends(t)
			})
		})
	}
}

// In a run, Shutdown would wait for itself.
func TestShutdown_insideARun_refused(t *testing.T) {
	onMem(t, func(t *testing.T) {
		var r, other *belugarunner.Runner
		refused := func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer cancel()
			refusedWith(t, r.Stop(ctx), core.ErrInvalidInput, distlock.ErrInvalidOption)
			return nil
		}
		r = newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
			return input, errors.Join(refused(ctx), other.Shutdown(ctx))
		}), "mem://", belugarunner.Options{Plugins: []runtime.Plugin{&hooks{before: refused}}})
		other = newRunner(t, answers(echo), "mem://")
		answered(t, "q")(say(t.Context(), r, "s", "q"))
	})
}

// Shutdown leaves the server to the others, once.
func TestShutdown_othersStay(t *testing.T) {
	onMem(t, func(t *testing.T) {
		first, second := newRunner(t, answers(echo), "mem://"), newRunner(t, answers(echo), "mem://")
		mem, err := belugamemory.New(config.ProviderConfig{BaseURL: "mem://"})
		must(t, err)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { must(t, first.Shutdown(t.Context())) })
		}
		all.Wait()
		answered(t, "answer to q")(say(t.Context(), second, "s", "q"))
		must(t, second.Shutdown(t.Context()))
		in, out := question("q")
		must(t, mem.Save(core.WithSessionID(t.Context(), "s"), in, out))
		must(t, mem.Close(t.Context()))
	})
}
