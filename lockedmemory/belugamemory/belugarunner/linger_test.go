package belugarunner_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// The worker of a cancelled run keeps the session until its end.
func TestRun_S1_cancelled_nextWaitsForTheWorker(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a, b := p.with(t, slow.agent), p.with(t, echo)
		p.cancelled(t, a, slow, "first")

		next := make(chan string)
		go func() {
			answer, errs := p.say(t.Context(), b, "second")
			if errs != nil {
				t.Error(errs)
			}
			next <- answer
		}()
		select {
		case answer := <-next:
			t.Fatalf("%q, while the worker of the run before is at work", answer)
		case <-time.After(2 * leaseTTL): // it is renewed
		}
		close(slow.goOn)
		if answer := <-next; answer != "answer to second" {
			t.Errorf("%q", answer)
		}
		if got := p.turns(t); got != "second" {
			t.Errorf("the turns %q", got)
		}
	})
}

var errAgent = errors.New("the agent failed")

// After the end of a run, no timer of MaxHold keeps the values of the caller's context.
func TestRun_leavesNothingBehind(t *testing.T) {
	p := inProcess(t)
	slow := newThinks()
	a := p.with(t, slow.agent)
	begin := func() weak.Pointer[[64]byte] {
		mark := new([64]byte)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), slow, mark))
		go func() { <-slow.begun; cancel() }()
		p.say(ctx, a, "q")
		return weak.Make(mark)
	}
	mark := begin()
	runtime.GC()
	if mark.Value() == nil {
		t.Fatal("the context is gone while the worker has it")
	}
	close(slow.goOn)
	a.AwaitWorkers()
	servers.Await(t, 20*time.Second, "the context of the caller is garbage",
		func() bool { runtime.GC(); return mark.Value() == nil })
}

func TestMaxHold_L_refusesLateUpdate(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		const age = 5 * time.Minute
		slow := newThinks()
		a, b := p.with(t, slow.agent, belugarunner.Options{MaxHold: age}), p.with(t, echo, belugarunner.Options{Wait: -1})
		start := time.Now()
		p.cancelled(t, a, slow, "late")
		succeeds(t)(p.say(t.Context(), b, "next"))
		if took := time.Since(start); took != age {
			t.Errorf("the next run began after %s, want %s", took, age)
		}
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
		a.AwaitWorkers()
		if got := p.turns(t); got != "next" {
			t.Errorf("the turns %q", got)
		}
	})
}

// If a run is older than MaxHold when it is cancelled, its lease ends at once.
func TestMaxHold_L_countsFromTheGrant(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		agent := func(ctx context.Context, input string) (string, error) {
			time.Sleep(time.Hour)
			return slow.agent(ctx, input)
		}
		a := p.with(t, agent, belugarunner.Options{MaxHold: time.Hour})
		p.cancelled(t, a, slow, "q")
		synctest.Wait()
		if !p.free(t, a) {
			t.Error("the lock stands")
		}
		close(slow.goOn)
		a.AwaitWorkers()

		slow = newThinks()
		a = p.with(t, slow.agent)
		p.cancelled(t, a, slow, "q")
		time.Sleep(10*time.Minute - time.Millisecond)
		if p.free(t, a) {
			t.Error("the lock is free before the default of MaxHold")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !p.free(t, a) {
			t.Error("the lock stands after the default of MaxHold")
		}
		close(slow.goOn)
	})
}

// If a run is cancelled during or after its Update, its lease ends with the Update.
func TestRun_cancelMeetsTheEnd(t *testing.T) {
	for _, name := range []string{"before the Update", "while it is under way", "when it is done"} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a := p.with(t, echo)
				p.sessions.updated = func() {
					switch name {
					case "before the Update":
						cancel()
					case "while it is under way":
						time.AfterFunc(time.Second, cancel)
					}
					time.Sleep(2 * time.Second)
				}
				for range a.Run(ctx, p.session, schema.NewHumanMessage("first")) {
					cancel()
				}
				p.sessions.updated = nil
				if name != "when it is done" && p.free(t, a) {
					t.Error("the lock is free while the Update is under way")
				}
				a.AwaitWorkers()
				synctest.Wait()
				if got := p.turns(t); got != "first" || !p.free(t, a) {
					t.Errorf("the turns %q; the lock is free: %t", got, p.free(t, a))
				}
			})
		})
	}
}

// Close releases the leases of cancelled runs and leaves no goroutine or timer.
func TestRun_closeEndsTheLingering(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a, b := p.with(t, slow.agent), p.with(t, echo)
		p.cancelled(t, a, slow, "late")
		var next sync.WaitGroup
		next.Go(func() {
			succeeds(t)(p.say(t.Context(), b, "next"))
		})
		synctest.Wait()
		start := time.Now()
		closeLocker(t, a.locker)
		next.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("the next run waited for %s", took)
		}
		close(slow.goOn)
		a.AwaitWorkers()
		if got := p.turns(t); got != "next" {
			t.Errorf("the turns %q", got)
		}
	})
}

func TestRun_N_lossEndsTheLingering(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow, seen := newThinks(), new(outcomes)
		p.observer = seen
		a := p.with(t, slow.agent)
		p.cancelled(t, a, slow, "late")
		p.lose(t)
		servers.Await(t, 20*time.Second, "the lock is free", func() bool { return p.free(t, a) })
		time.Sleep(leaseTTL)
		if got := seen.all(); !slices.Equal(got, []distlock.Outcome{distlock.OutcomeLost}) {
			t.Errorf("outcomes %v, while the worker is at work", got)
		}
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
		a.AwaitWorkers()
	})
}
