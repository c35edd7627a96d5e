package belugarunner_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// The worker of a cancelled run keeps the session until its end.
func TestRun_S1_cancelled_nextWaitsForTheWorker(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a, b := p.with(slow.agent), p.with(echo)
		p.cancelled(a, slow, "first")
		next := make(chan struct{})
		go func() {
			p.talk(b, "second")
			close(next)
		}()
		select {
		case <-next:
			t.Fatal("the next run ends while the worker of the run before is at work")
		case <-time.After(2 * leaseTTL): // it is renewed
		}
		close(slow.goOn)
		<-next
		p.turns("second")
	})
}

// MaxHold and Close end the lease of a cancelled run, whose worker then stores nothing.
func TestMaxHold_L_refusesLateUpdate(t *testing.T) {
	for name, after := range map[string]time.Duration{"MaxHold": 5 * time.Minute, "Close": 0} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				slow := newThinks()
				a, b := p.with(slow.agent, belugarunner.Options{MaxHold: 5 * time.Minute}), p.with(echo, belugarunner.Options{Wait: -1})
				start := time.Now()
				p.cancelled(a, slow, "late")
				var next sync.WaitGroup
				next.Go(func() { p.talk(b, "next") })
				if synctest.Wait(); name == "Close" {
					closeLocker(t, a.locker)
				}
				next.Wait()
				if took := time.Since(start); took != after {
					t.Errorf("the next run began after %s, want %s", took, after)
				}
				p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
				close(slow.goOn)
				a.AwaitWorkers()
				p.turns("next")
			})
		})
	}
}

// If a run is older than MaxHold when it is cancelled, its lease ends at once.
func TestMaxHold_L_countsFromTheGrant(t *testing.T) {
	for name, opts := range map[string]belugarunner.Options{"": {MaxHold: time.Hour}, "default": {}} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				slow := newThinks()
				a := p.with(func(ctx context.Context, input string) (string, error) {
					time.Sleep(opts.MaxHold)
					return slow.agent(ctx, input)
				}, opts)
				p.cancelled(a, slow, "q")
				if opts.MaxHold == 0 {
					if time.Sleep(10*time.Minute - time.Millisecond); p.free(a) {
						t.Error("the lock is free before the default of MaxHold")
					}
					time.Sleep(time.Millisecond)
				}
				if synctest.Wait(); !p.free(a) {
					t.Error("the lock stands after MaxHold")
				}
				close(slow.goOn)
				p.observer.are(t, distlock.OutcomeCancelled)
			})
		})
	}
}

// If a run is cancelled during or after its Update, its lease ends with the Update.
func TestRun_cancelMeetsTheEnd(t *testing.T) {
	for _, name := range []string{"before the Update", "while it is under way", "when it is done"} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a := p.with(echo)
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
				if name != "when it is done" && p.free(a) {
					t.Error("the lock is free while the Update is under way")
				}
				a.AwaitWorkers()
				synctest.Wait()
				if p.turns("first"); !p.free(a) {
					t.Error("the lock stands")
				}
			})
		})
	}
}

func TestRun_N_lossEndsTheLingering(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow := newThinks()
		a := p.with(slow.agent)
		p.cancelled(a, slow, "late")
		p.lose()
		servers.Await(t, 20*time.Second, "the lock is free", func() bool { return p.free(a) })
		time.Sleep(leaseTTL)
		p.observer.are(t, distlock.OutcomeLost) // while the worker is at work
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		close(slow.goOn)
		a.AwaitWorkers()
	})
}

// The end of a cancelled run waits for a Save of a tool that outlives its agent.
func TestRun_S1_endWaitsForASave(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		ctx, cancel := context.WithCancel(t.Context())
		var a *instance
		a = p.with(func(ctx context.Context, _ string) (string, error) {
			lease, _ := a.locker.FromContext(ctx, p.session)
			begun := make(chan struct{})
			go lease.Guard(ctx, func(context.Context) error { close(begun); time.Sleep(time.Second); return nil })
			<-begun
			cancel()
			return "", errAgent
		})
		_, _ = p.say(ctx, a, "q")
		if time.Sleep(5 * time.Millisecond); p.free(a) {
			t.Error("the session is free while a Save of the cancelled run is under way")
		}
		if time.Sleep(time.Second); !p.free(a) {
			t.Error("the session is held after the Save")
		}
	})
}
