package belugamemory_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

// The worker of a run that was cancelled may still write. The next run sees what it has written.
func TestLockRun_S1_nextRunWaitsForTheUpdateOfACancelledOne(t *testing.T) {
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

// What an Update is to do whose context has ended is for the service to say, and not for chance.
func TestWrapSessions_passesOnTheUpdateOfACancelledRun(t *testing.T) {
	const runs = 30
	for name, heeds := range map[string]bool{"the service writes": false, "the service refuses": true} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				for range runs {
					slow := newThinks()
					a := p.with(t, slow.agent)
					if heeds {
						var err error
						if a.scripted.sessions, err = belugamemory.WrapSessions(p.sessions.SessionService, a.locker); err != nil {
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

// fails is an agent that ends with an error when its context has ended and it is let go, having told OnEnd.
func (a *thinks) fails(hook bool) func(ctx context.Context, input string) (string, error) {
	return func(ctx context.Context, _ string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Hour) // as Beluga's executor has
		defer cancel()
		close(a.begun)
		<-ctx.Done()
		<-a.goOn
		if hook {
			belugamemory.OnEnd(ctx, "", errAgent)
		}
		return "", errAgent
	}
}

func TestOnEnd_L_freesTheSessionOfACancelledRunAtOnce(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a := p.with(t, slow.fails(true))
		p.cancelled(t, a, slow, "q")
		synctest.Wait()
		if p.free(t, a) {
			t.Fatal("the lock is free while the agent is at work")
		}
		close(slow.goOn)
		synctest.Wait()
		if !p.free(t, a) {
			t.Error("the lock stands after OnEnd")
		}
	})
}

// A time limit of the agent's, or of one that works for it, is no end of the run, and neither is a success: the Update comes after that.
func TestOnEnd_S1_isNotTakenInByOtherEnds(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		var a *instance
		a = p.with(t, func(ctx context.Context, input string) (string, error) {
			limited, cancel := context.WithCancel(ctx)
			cancel()
			belugamemory.OnEnd(limited, "", context.DeadlineExceeded) // of another agent, when the run goes on
			answer, err := slow.agent(ctx, input)
			belugamemory.OnEnd(ctx, answer, nil)
			time.Sleep(time.Second) // the plugins
			if p.free(t, a) {
				t.Error("the lock is free before the Update")
			}
			return answer, err
		})
		p.cancelled(t, a, slow, "q")
		time.Sleep(time.Second)
		if p.free(t, a) {
			t.Fatal("the lock is free while the agent is at work")
		}
		close(slow.goOn)
		a.workers.Wait()
		if got := p.turns(t); got != "q" {
			t.Errorf("the turns %q", got)
		}
		belugamemory.OnEnd(t.Context(), "", errAgent) // of no run
	})
}

// Nobody says that this run has ended: its worker just goes away, and with it the run's context. Not on fake time, which garbage collection
// has no part in.
func TestLockRun_L_garbageCollectionFreesTheSession(t *testing.T) {
	p := inProcess(t)
	slow := newThinks()
	a := p.with(t, slow.fails(false))
	p.cancelled(t, a, slow, "q")
	for range 5 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	if p.free(t, a) {
		t.Fatal("the lock is free while the worker has the context")
	}
	close(slow.goOn)
	a.workers.Wait()
	testservers.Await(t, 20*time.Second, "the lock is free", func() bool { runtime.GC(); return p.free(t, a) })
}

// Contexts that the run has made of its own, and never cancelled, do not keep it.
func TestLockRun_L_garbageCollectionFreesTheSessionOfARunWithLeaks(t *testing.T) {
	p := inProcess(t)
	slow := newThinks()
	a := p.with(t, func(ctx context.Context, input string) (string, error) {
		leaked, cancel := context.WithTimeout(ctx, time.Hour)
		_ = cancel
		return slow.fails(false)(leaked, input)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	within, leave := context.WithCancel(ctx)
	go func() { <-slow.begun; leave() }()
	p.say(within, a, "q")
	close(slow.goOn)
	a.workers.Wait()
	testservers.Await(t, 20*time.Second, "the lock is free", func() bool { runtime.GC(); return p.free(t, a) })
	runtime.KeepAlive(within)
}

// When the end of a run was seen, nothing waits for MaxHold any more, and keeps what the caller's context has.
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
	testservers.Await(t, 20*time.Second, "the context of the caller is garbage", func() bool { runtime.GC(); return mark.Value() == nil })
}

func TestWithMaxHold_L_freesTheSessionAndRefusesTheLateUpdate(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		const age = 5 * time.Minute
		slow := newThinks()
		a, b := p.with(t, slow.agent, belugamemory.WithMaxHold(age)), p.with(t, echo)
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

// A run that is older than that when it is cancelled does not linger; the Locker's own limit counts where there is no option.
func TestWithMaxHold_L_countsFromTheGrant(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		slow := newThinks()
		agent := func(ctx context.Context, input string) (string, error) {
			time.Sleep(time.Hour)
			return slow.agent(ctx, input)
		}
		a := p.with(t, agent, belugamemory.WithMaxHold(time.Hour))
		p.cancelled(t, a, slow, "q")
		synctest.Wait()
		if !p.free(t, a) {
			t.Error("the lock stands")
		}
		close(slow.goOn)
		a.workers.Wait()

		locker := p.newLocker(t, distlock.Options{TTL: leaseTTL, MaxHold: 2 * time.Minute})
		var err error
		if a.locked, err = belugamemory.LockRun(locker, a.Run); err != nil {
			t.Fatal(err)
		}
		slow = newThinks()
		a.agent = slow.agent
		p.cancelled(t, a, slow, "q")
		time.Sleep(2*time.Minute - time.Second)
		if p.free(t, a) {
			t.Error("the lock is free too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !p.free(t, a) {
			t.Error("the lock stands")
		}
		close(slow.goOn)
	})
}

// A run that is cancelled when its Update has been done, or while that is under way, is not waited for any longer than that.
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

// Close gives back what lingers, and nothing of that is left to wait for.
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
