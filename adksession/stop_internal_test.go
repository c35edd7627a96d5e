package adksession

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

func (r *rig) stop(ctx context.Context) error { return r.Stop(ctx, r.id.app, r.id.user, r.id.name) }

// A run that does not know of the Stop appends nothing after it. A run and an Append that wait end, too.
// Later ones are left alone.
func TestStop_run(t *testing.T) {
	r, waits, other := newRig(t), newRig(t), newRig(t)
	r.create(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	by := r.runner(t, callsOnce, toolOf(t, functiontool.Config{}, func(agent.Context) { close(begun); <-goOn }))
	answers := 0
	counts := waits.runner(t, func(context.Context, *model.LLMRequest) *genai.Content { answers++; return says("a") })
	ends := make(chan error, 3)
	go func() { _, errs := r.run(t.Context(), by, asks("q")); ends <- errors.Join(errs...) }()
	<-begun
	go func() { _, errs := waits.run(t.Context(), counts, asks("waits")); ends <- errors.Join(errs...) }()
	go func() { ends <- other.Append(t.Context(), r.id.app, r.id.user, r.id.name, event("waits")) }()
	servers.Await(t, 15*time.Second, "two that wait", func() bool {
		info, err := r.locker.Inspect(t.Context(), r.id.key())
		return err == nil && info.Waiters == 2
	})
	must(t, other.stop(t.Context()))
	r.wantHistory(t, "q", "")
	close(goOn)
	for range cap(ends) {
		if err := <-ends; !errors.Is(err, distlock.ErrInterrupted) || errors.Is(err, ErrStale) {
			t.Errorf("after the Stop: %v", err)
		}
	}
	_, errs := waits.run(t.Context(), counts, asks("later"))
	must(t, errors.Join(errs...))
	if r.wantHistory(t, "q", "", "later", "a"); answers != 1 {
		t.Errorf("%d answers, want that of the later run alone", answers)
	}
}

// Without a run, a Stop does nothing. A run does not stop itself.
func TestStop_noRun(t *testing.T) {
	r := newRig(t)
	must(t, r.stop(t.Context()))
	h := r.create(t)
	must(t, r.stop(t.Context()))
	must(t, r.AppendEvent(t.Context(), h, event("1")))
	var ended context.Context
	r.under(t, func(ctx context.Context) {
		var busy *distlock.BusyError
		if err := r.stop(ctx); !errors.As(err, &busy) || !busy.Self || err != errInside {
			t.Errorf("inside the run: %v", err)
		}
		must(t, r.AppendEvent(ctx, h, event("2")))
		ended = context.WithoutCancel(ctx)
	})
	must(t, r.stop(ended))
	r.wantHistory(t, "1", "2")
	wantError(t, "no session ID", r.Stop(t.Context(), "app", "user", ""), distlock.ErrInvalidKey)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, "an ended ctx", r.stop(ctx), context.Canceled)
}

// The copy of an append arrives after the Stop, also after a later run.
func TestStop_lateCopy(t *testing.T) {
	r, other := newRig(t), newRig(t)
	r.create(t)
	var late request
	arrives := func(since int64, want outcome) {
		late.since = since
		if got, err := r.faulty.store.do(t.Context(), late); err != nil || got.outcome != want {
			t.Errorf("since %d: %d, %v, want %d", since, got.outcome, err, want)
		}
	}
	since := int64(0)
	r.under(t, func(ctx context.Context) {
		late = r.held(t, ctx, r.must(t, ctx))
		since = late.since
		must(t, other.stop(t.Context()))
		arrives(since, ended)
		arrives(0, stale) // as after a late handoff
	})
	r.under(t, func(ctx context.Context) { r.must(t, ctx) })
	arrives(since, ended)
	r.wantHistory(t)
}

// A run has read nothing yet when it is stopped. A higher token does not help it.
func TestStop_tokenRaised(t *testing.T) {
	r, other := newRig(t), newRig(t)
	h := r.create(t)
	for _, raised := range []bool{false, true} {
		r.under(t, func(ctx context.Context) {
			must(t, other.stop(t.Context()))
			if lease, _ := r.locker.FromContext(ctx, r.id.key()); raised { // by another store
				must(t, fencing.RaiseToken(ctx, lease, lease.Fence()+1e6))
			}
			_, err := r.get(ctx)
			wantError(t, "Get", err, distlock.ErrInterrupted)
			_, err = r.Create(ctx, &session.CreateRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name})
			wantError(t, "Create", err, distlock.ErrInterrupted)
			wantError(t, "Append", r.Append(ctx, r.id.app, r.id.user, r.id.name, event("1")), distlock.ErrInterrupted)
		})
	}
	must(t, r.AppendEvent(t.Context(), h, event("2")))
	r.wantHistory(t, "2")
}

// A Stop asks again after a lost answer, and if a raised token reached the store before it.
func TestStop_again(t *testing.T) {
	r, other := newRig(t), newRig(t)
	r.create(t)
	for name, hook := range map[string]func(context.Context, request, func() (reply, error)) (reply, error){
		"answer lost": func(_ context.Context, q request, do func() (reply, error)) (reply, error) { return loseAnswer(q, do) },
		"raised": func(ctx context.Context, q request, do func() (reply, error)) (reply, error) {
			lease, _ := r.locker.FromContext(ctx, r.id.key())
			must(t, fencing.RaiseToken(ctx, lease, q.token))
			r.must(t, ctx)
			return do()
		},
	} {
		r.under(t, func(ctx context.Context) {
			before := other.faulty.count(opStop)
			other.faulty.on(opStop, 1, func(q request, do func() (reply, error)) (reply, error) { return hook(ctx, q, do) })
			must(t, other.stop(t.Context()))
			if n := other.faulty.count(opStop) - before; n != 2 {
				t.Errorf("%s: %d requests, want 2", name, n)
			}
			wantError(t, name, r.Append(ctx, r.id.app, r.id.user, r.id.name, event("1")), distlock.ErrInterrupted)
		})
	}
	r.wantHistory(t)
	ctx, cancel := context.WithCancel(t.Context())
	other.faulty.on(opStop, -1, func(q request, do func() (reply, error)) (reply, error) {
		cancel()
		return loseAnswer(q, do)
	})
	wantError(t, "without an answer", other.stop(ctx), distlock.ErrOutcomeUnknown)
}

// The lock service has lost the lease of a run whose token is above its clock.
func TestStop_leaseLost(t *testing.T) {
	r, other := newRig(t), newRig(t)
	r.create(t)
	r.under(t, func(ctx context.Context) {
		lease, _ := r.locker.FromContext(ctx, r.id.key())
		must(t, fencing.RaiseToken(ctx, lease, lease.Fence()+1e9))
	})
	err := r.locker.Do(t.Context(), r.id.key(), func(ctx context.Context) error {
		h := r.must(t, ctx)
		must(t, r.client.Del(t.Context(), r.lock()).Err())
		must(t, other.stop(t.Context()))
		return r.AppendEvent(ctx, h, event("1"))
	})
	wantError(t, "the append", err, distlock.ErrInterrupted)
	r.wantHistory(t)
}

// A run has seen no session, and creates one while the Stop looks.
func TestStop_autoCreate(t *testing.T) {
	r, other := newRig(t), newRig(t)
	looked, stopped := make(chan struct{}), make(chan error, 1)
	r.under(t, func(ctx context.Context) {
		_, err := r.get(ctx)
		wantError(t, "Get", err, ErrNotFound)
		other.faulty.on(opStop, 1, func(_ request, do func() (reply, error)) (reply, error) {
			defer close(looked)
			return do()
		})
		r.faulty.on(opCreate, 1, func(_ request, do func() (reply, error)) (reply, error) {
			go func() { stopped <- other.stop(t.Context()) }()
			<-looked
			return do()
		})
		created, err := r.Create(ctx, &session.CreateRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name})
		must(t, err)
		must(t, <-stopped)
		wantError(t, "the append", r.AppendEvent(ctx, created.Session, event("1")), distlock.ErrInterrupted)
	})
	r.wantHistory(t)
}

// The run was asked, and its mark is not raised.
func TestStop_storeDown(t *testing.T) {
	r := newRig(t)
	r.faulty.on(opStop, -1, func(request, func() (reply, error)) (reply, error) { return reply{}, driver.ErrTemporary })
	if err := r.stop(t.Context()); !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("the Stop: %v", err)
	}
}

// The context of a request by REST ends, with the locks and the sessions in each service.
func TestStop_byREST(t *testing.T) {
	t.Run("redis", func(t *testing.T) { stopsREST(t, nil) })
	t.Run("postgres", func(t *testing.T) { stopsREST(t, database(t)) })
}

func stopsREST(t *testing.T, db any) {
	r, other := newRig(t, db, 2*time.Second), newRig(t, db) // it ends at a renewal
	r.id.app, other.id.app = "agent", "agent"
	r.create(t)
	begun, cause := make(chan struct{}), error(nil)
	rest := r.rest(t, func(ctx context.Context, _ *model.LLMRequest) *genai.Content {
		close(begun)
		<-ctx.Done()
		cause = context.Cause(ctx)
		return nil
	})
	served := make(chan int)
	go func() { code, _ := r.post(t, rest, "/run", r.body("q")); served <- code }()
	<-begun
	must(t, other.stop(t.Context()))
	if code := <-served; code != http.StatusInternalServerError || !errors.Is(cause, distlock.ErrInterrupted) {
		t.Errorf("status %d, the context ends with %v", code, cause)
	}
	r.wantHistory(t, "q")
}

type seesStop struct{ ended []distlock.Operation }

func (*seesStop) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (s *seesStop) End(_ context.Context, op *distlock.Operation) {
	if op.Name == lockedmemory.OpStop {
		s.ended = append(s.ended, *op)
	}
}

func TestStop_observed(t *testing.T) {
	seen := new(seesStop)
	r := newRig(t, distlock.Options{Observer: seen})
	must(t, r.stop(t.Context()))
	if len(seen.ended) != 1 || seen.ended[0].Key != r.id.key() || seen.ended[0].Outcome != distlock.OutcomeDone {
		t.Errorf("%+v", seen.ended)
	}
}

// A Redis without memory has written nothing.
func TestStop_noMemory(t *testing.T) {
	r := newRig(t, servers.StartRedis(t))
	r.create(t)
	must(t, r.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	wantError(t, "Stop", r.Stop(t.Context(), r.id.app, r.id.user, r.id.name), distlock.ErrRefused)
}
