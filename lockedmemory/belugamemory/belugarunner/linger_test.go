package belugarunner_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// The worker of a cancelled run may still write. The next run sees its writes.
func TestLockRun_S1_cancelled_nextWaitsForUpdate(t *testing.T) {
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
		if got := p.turns(t); got != "first second" {
			t.Errorf("the turns %q", got)
		}
	})
}

// The service decides about an Update whose context has ended. The result is always the same.
func TestWrapSessions_cancelledRun_updateRuns(t *testing.T) {
	const runs = 30
	for name, heeds := range map[string]bool{"the service writes": false, "the service refuses": true} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				for range runs {
					slow := newThinks()
					a := p.with(t, slow.agent)
					if heeds {
						var err error
						if a.scripted.sessions, err = belugarunner.WrapSessions(p.sessions.SessionService, a.locker); err != nil {
							t.Fatal(err)
						}
					}
					p.cancelled(t, a, slow, "q")
					close(slow.goOn)
					synctest.Wait()
					if !p.free(t, a) {
						t.Fatal("the lock stands after the Update")
					}
				}
				want := 2 * runs
				if heeds {
					want = 1 // less than one
				}
				if got := len(p.turns(t)) + 1; got != want {
					t.Errorf("%d turns of %d", got/2, runs)
				}
			})
		})
	}
}

var errAgent = errors.New("the agent failed")

// fails is an agent that returns an error after its context has ended and the test has released it.
func (a *thinks) fails(ctx context.Context, _ string) (string, error) {
	close(a.begun)
	<-ctx.Done()
	<-a.goOn
	return "", errAgent
}

// A worker without a session does not reach its agent.
func TestLockRun_L_cancelledWithoutASession(t *testing.T) {
	for name, reads := range map[string]bool{"before it is read": false, "while it is read": true} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				a := p.with(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				run := a.Run
				if !reads { // Beluga's Runner then has no free worker
					run = func(ctx context.Context, _, _ string) iter.Seq2[string, error] {
						return func(yield func(string, error) bool) { <-ctx.Done(); yield("", ctx.Err()) }
					}
				}
				p.sessions.got = func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(time.Second)
					if p.free(t, a) {
						t.Error("the session is free while the worker reads it")
					}
					return ctx.Err()
				}
				a.locked = must2(belugarunner.LockRun(a.locker, run))
				if answer, errs := p.say(ctx, a, "q"); answer != "" || len(errs) != 1 || errs[0] != context.Canceled {
					t.Errorf("answer %q, errors %v", answer, errs)
				}
				a.workers.Wait()
				time.Sleep(5 * time.Millisecond)
				if !p.free(t, a) {
					t.Error("the session of a cancelled run without a worker is held")
				}
			})
		})
	}
}

// Not on fake time: garbage collection does not follow it.
func TestLockRun_collectorFreesNoSession(t *testing.T) {
	p := inProcess(t)
	slow := newThinks()
	a := p.with(t, slow.fails)
	p.cancelled(t, a, slow, "q")
	close(slow.goOn)
	a.workers.Wait()
	for range 3 {
		collected := make(chan struct{})
		runtime.AddCleanup(new([64]byte), func(done chan struct{}) { close(done) }, collected)
		testservers.Await(t, 20*time.Second, "garbage is collected", func() bool {
			runtime.GC()
			select {
			case <-collected:
				return true
			default:
				return false
			}
		})
	}
	if p.free(t, a) {
		t.Error("the garbage collector has freed the session")
	}
}

// After the end of a run, no timer of MaxHold keeps the values of the caller's context.
func TestLockRun_leavesNothingBehind(t *testing.T) {
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
	a.workers.Wait()
	testservers.Await(t, 20*time.Second, "the context of the caller is garbage",
		func() bool { runtime.GC(); return mark.Value() == nil })
}

func TestWithMaxHold_L_refusesLateUpdate(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		const age = 5 * time.Minute
		slow := newThinks()
		a, b := p.with(t, slow.agent, belugarunner.WithMaxHold(age)), p.with(t, echo, belugarunner.WithWait(-1))
		start := time.Now()
		p.cancelled(t, a, slow, "late")
		if _, errs := p.say(t.Context(), b, "next"); errs != nil {
			t.Fatal(errs)
		}
		if took := time.Since(start); took != age {
			t.Errorf("the next run began after %s, want %s", took, age)
		}
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
		a.workers.Wait()
		if got := p.turns(t); got != "next" {
			t.Errorf("the turns %q", got)
		}
	})
}

// If a run is older than MaxHold when it is cancelled, its lease ends at once. Without the option,
// MaxHold of the Locker counts.
func TestWithMaxHold_L_countsFromTheGrant(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		agent := func(ctx context.Context, input string) (string, error) {
			time.Sleep(time.Hour)
			return slow.agent(ctx, input)
		}
		a := p.with(t, agent, belugarunner.WithMaxHold(time.Hour))
		p.cancelled(t, a, slow, "q")
		synctest.Wait()
		if !p.free(t, a) {
			t.Error("the lock stands")
		}
		close(slow.goOn)
		a.workers.Wait()

		for ofLocker, want := range map[time.Duration]time.Duration{2 * time.Minute: 2 * time.Minute, 0: 10 * time.Minute} {
			a.locker = p.newLocker(t, distlock.Options{TTL: leaseTTL, MaxHold: ofLocker})
			a.sessions = must2(belugarunner.WrapSessions(p.sessions, a.locker))
			a.locked = must2(belugarunner.LockRun(a.locker, a.Run))
			slow = newThinks()
			a.agent = slow.fails
			p.cancelled(t, a, slow, "q")
			close(slow.goOn)
			time.Sleep(want - time.Millisecond)
			if p.free(t, a) {
				t.Errorf("the lock is free %s before MaxHold", time.Millisecond)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if !p.free(t, a) {
				t.Errorf("the lock stands after %s", want)
			}
		}
	})
}

// If a run is cancelled during or after its Update, its lease ends with the Update.
func TestLockRun_cancelMeetsTheEnd(t *testing.T) {
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
				for range a.locked(ctx, p.session, "first") {
					cancel()
				}
				p.sessions.updated = nil
				if name != "when it is done" && p.free(t, a) {
					t.Error("the lock is free while the Update is under way")
				}
				a.workers.Wait()
				synctest.Wait()
				if got := p.turns(t); got != "first" || !p.free(t, a) {
					t.Errorf("the turns %q; the lock is free: %t", got, p.free(t, a))
				}
			})
		})
	}
}

// Close releases the leases of cancelled runs and leaves no goroutine or timer.
func TestLockRun_closeEndsTheLingering(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a, b := p.with(t, slow.agent), p.with(t, echo)
		p.cancelled(t, a, slow, "late")
		var next sync.WaitGroup
		next.Go(func() {
			if _, errs := p.say(t.Context(), b, "next"); errs != nil {
				t.Error(errs)
			}
		})
		synctest.Wait()
		start := time.Now()
		closeLocker(t, a.locker)
		next.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("the next run waited for %s", took)
		}
		close(slow.goOn)
		a.workers.Wait()
		if got := p.turns(t); got != "next" {
			t.Errorf("the turns %q", got)
		}
	})
}

func TestLockRun_N_lossEndsTheLingering(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a := p.with(t, slow.agent)
		p.cancelled(t, a, slow, "late")
		p.lose(t)
		testservers.Await(t, 20*time.Second, "the lock is free", func() bool { return p.free(t, a) })
		time.Sleep(leaseTTL)
		session, err := p.sessions.Get(t.Context(), p.session)
		must(t, err)
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
		a.workers.Wait()
		refusedWith(t, a.scripted.sessions.Update(t.Context(), session), core.ErrInvalidInput, distlock.ErrNotHeld)
	})
}
