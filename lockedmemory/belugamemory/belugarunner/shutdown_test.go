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

// refusedByShutdown makes a run after a Shutdown, or during it. Another instance can do the run.
func refusedByShutdown(t *testing.T, r *belugarunner.Runner) {
	t.Helper()
	_, err := say(t, t.Context(), r, "s", "refused")
	refusedWith(t, err, belugamemory.ErrShuttingDown, distlock.ErrClosed)
	if belugamemory.Retryable(err) {
		t.Errorf("%v is retryable on this instance", err)
	}
}

func TestShutdown_refusesNewRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, r := newRunner(t, answers(echo), "mem://"), newRunner(t, never("it was shut down"), "mem://")
		must(t, r.Shutdown(t.Context()))
		for range 50 {
			refusedByShutdown(t, r)
		}
		talk(t, other, "s", "q")
		must(t, r.Shutdown(t.Context()))
		refusedWith(t, r.Start(t.Context()), belugamemory.ErrShuttingDown, distlock.ErrClosed)
	})
}

// Shutdown ends the runs that wait for their session, and waits for the run that has it.
func TestShutdown_endsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newThinks()
		r := newRunner(t, answers(slow.agent), "mem://")
		var all sync.WaitGroup
		all.Go(func() { talk(t, r, "s", "under way") })
		<-slow.begun
		for range 3 {
			all.Go(func() { refusedByShutdown(t, r) })
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
	synctest.Test(t, func(t *testing.T) {
		slow := newThinks()
		r := newRunner(t, answers(slow.agent), "mem://")
		go func() { _, _ = say(t, t.Context(), r, "s", "q") }()
		<-slow.begun
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		for range 50 {
			waiters.Go(func() {
				if _, err := say(t, ctx, r, "s", "waits"); !errors.Is(err, context.Canceled) || core.IsRetryable(err) {
					t.Errorf("%v", err)
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
			synctest.Test(t, func(t *testing.T) {
				slow := newThinks()
				r := newRunner(t, answers(slow.agent), "mem://", test.opts)
				run := func(ctx context.Context) error {
					ctx, cancel := context.WithCancel(ctx)
					go func() { <-slow.begun; cancel() }()
					return second(say(t, ctx, r, "s", "q"))
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
		synctest.Test(t, func(t *testing.T) {
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
	info := must2(l.Inspect(context.Background(), key))
	name, breaker := driver.Name{Namespace: fencing.Options(l).Namespace, Key: key}, fencing.Driver(l).(driver.Breaker)
	if broken, err := breaker.Break(context.Background(), name, info.Fence); !broken || err != nil {
		t.Errorf("the lock was broken: %t, %v", broken, err)
	}
}

// An agent may release the lease of its run. The run fails, and Shutdown does not wait for it.
func TestShutdown_afterAReleaseInTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *belugarunner.Runner
		r = newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
			lease, _ := r.Locker().FromContext(ctx, "s")
			return input, lease.Release(ctx)
		}), "mem://")
		if _, err := say(t, t.Context(), r, "s", "q"); err == nil {
			t.Error("the run has no error")
		}
		stop(t.Context(), r).ends(t)
	})
}

// In a run, Shutdown would wait for itself.
func TestShutdown_insideARun_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r, other *belugarunner.Runner
		refused := func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer cancel()
			refusedWith(t, r.Stop(ctx), core.ErrInvalidInput, distlock.ErrInvalidOption)
			return nil
		}
		r = newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
			return input, errors.Join(refused(ctx), other.Shutdown(ctx))
		}), "mem://", belugarunner.Options{Plugins: []runtime.Plugin{before(refused)}})
		other = newRunner(t, answers(echo), "mem://")
		answered(t, "q")(say(t, t.Context(), r, "s", "q"))
	})
}

// Shutdown leaves the server to the others, once.
func TestShutdown_othersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newRunner(t, answers(echo), "mem://"), newRunner(t, answers(echo), "mem://")
		mem := must2(belugamemory.New(config.ProviderConfig{BaseURL: "mem://"}))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { must(t, first.Shutdown(t.Context())) })
		}
		all.Wait()
		answered(t, "answer to q")(say(t, t.Context(), second, "s", "q"))
		must(t, second.Shutdown(t.Context()))
		in, out := question("q")
		must(t, mem.Save(core.WithSessionID(t.Context(), "s"), in, out))
		must(t, mem.Close(t.Context()))
	})
}
