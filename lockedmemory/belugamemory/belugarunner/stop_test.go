package belugarunner_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// After StopSession, nothing of the run is stored, also if its agent ignores its context. A run that waits
// ends, too.
func TestStopSession_O_nothingIsStored(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		for _, session := range []string{"heeds", "ignores"} {
			slow := newThinks()
			asks := answers(func(ctx context.Context, input string) (string, error) {
				switch input {
				case "heeds", "waits": // the lock may pass on before the store knows of the stop, which then asks again
					if input == "heeds" {
						close(slow.begun)
					}
					<-ctx.Done()
					return "", ctx.Err()
				case "ignores":
					return slow.agent(ctx, input)
				}
				return echo(ctx, input)
			})
			a := newRunner(t, asks, url, belugarunner.Options{Interruptible: true})
			b := newRunner(t, asks, url, belugarunner.Options{Interruptible: true, TTL: time.Minute}) // not the Locker
			talk(t, a, session, "before")
			runs, waits := make(chan error, 1), make(chan error, 1)
			go func() { runs <- second(say(t, t.Context(), a, session, session)) }()
			<-slow.begun
			go func() { waits <- second(say(t, t.Context(), b, session, "waits")) }()
			servers.Await(t, 5*time.Second, "a run waits", func() bool {
				info, err := b.Locker().Inspect(t.Context(), session)
				return err == nil && info.Waiters > 0
			})
			must(t, b.StopSession(t.Context(), session, 0))
			for _, ended := range []chan error{runs, waits} {
				refusedWith(t, <-ended, belugamemory.ErrInterrupted, distlock.ErrInterrupted)
			}
			close(slow.goOn)
			a.AwaitWorkers()
			talk(t, b, session, "after")
			said(t, a, session, "before after")
		}
	})
}

// The service of an application knows no tokens. StopSession waits for an Update under way, and a later one
// is not begun.
func TestStopSession_L_serviceOfTheApplication(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(echo)
		begun, done := make(chan struct{}), new(atomic.Bool)
		p.sessions.updated = func() { close(begun); time.Sleep(2 * time.Second); done.Store(true) }
		go func() { _, _ = p.say(t.Context(), a, "q") }()
		<-begun
		if err := a.StopSession(t.Context(), p.session, 0); !errors.Is(err, distlock.ErrOutcomeUnknown) || done.Load() {
			t.Errorf("without a grace: %v", err)
		}
		if err := a.StopSession(t.Context(), p.session, 5*time.Second); err != nil || !done.Load() {
			t.Errorf("StopSession: %v, the Update has ended: %t", err, done.Load())
		}
		a.AwaitWorkers()
		p.sessions.updated = func() { t.Error("the service is asked for a late Update") }
		lease, err := a.locker.Acquire(t.Context(), p.session)
		must(t, err)
		if held, err := a.locker.Interrupt(t.Context(), p.session); !held || err != nil {
			t.Errorf("Interrupt: %t, %v", held, err)
		}
		<-lease.Context().Done()
		refusedWith(t, a.UpdateUnder(lease, &runtime.Session{ID: p.session}), belugamemory.ErrInterrupted, distlock.ErrInterrupted)
		must(t, lease.Release(t.Context()))
	})
}

func TestStopSession_refusesWrongInput(t *testing.T) {
	var r *belugarunner.Runner
	r = newRunner(t, answers(func(ctx context.Context, _ string) (string, error) { return "", r.StopSession(ctx, "s", 0) }), "mem://")
	_, err := say(t, t.Context(), r, "s", "q")
	refusedWith(t, err, core.ErrInvalidInput, distlock.ErrNotAcquired)
	refusedWith(t, r.StopSession(t.Context(), "", 0), core.ErrInvalidInput, distlock.ErrInvalidKey)
}
