package adksession

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/retry"
	"github.com/belugalock/belugalock/lockedmemory"
)

// noMemory is the memory of a turn that only locks.
type noMemory struct {
	lockedmemory.Memory[struct{}, struct{}]
}

// turns runs turns under a lock. The error is that of the options, which newService has checked.
func (s *Service) turns(key string) (*lockedmemory.LockedMemory[struct{}, struct{}], error) {
	opts := &lockedmemory.Options{Wait: s.opts.Wait, Busy: s.opts.Busy}
	return lockedmemory.New(noMemory{}, s.locker, lockedmemory.FixedKey(key), opts)
}

// Runner is a runner of ADK whose runs hold the lock of their session. RunLive takes no lock: its appends
// are checked alone.
type Runner struct {
	*runner.Runner
	service *Service
	app     string
}

// NewRunner makes a Runner of this Service. Leave the SessionService of the Config nil: another one is
// refused with distlock.ErrInvalidOption.
func (s *Service) NewRunner(cfg runner.Config) (*Runner, error) {
	if cfg.SessionService != nil && cfg.SessionService != session.Service(s) {
		return nil, fmt.Errorf("%w: the Config has another SessionService: leave it nil", distlock.ErrInvalidOption)
	}
	cfg.SessionService = s
	inner, err := runner.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Runner{inner, s, cfg.AppName}, nil
}

// Run is Run of ADK under the lock of the session, for which it waits as Options say. The end of the
// iteration releases the lock, also a break or a panic. ⚑ An iter.Pull that is never stopped keeps it:
// set distlock.Options.MaxHold.
//
// Further errors: a *distlock.BusyError, whose Self is true in a run of the same session; distlock.ErrLost,
// distlock.ErrInterrupted or distlock.ErrClosed if the lease ended during the run. The stored events stay.
func (r *Runner) Run(ctx context.Context, userID, sessionID string, msg *genai.Content, cfg agent.RunConfig,
	opts ...runner.RunOption) iter.Seq2[*session.Event, error] {
	return func(yield func(*session.Event, error) bool) {
		of := id{r.app, userID, sessionID}
		if err := of.check(); err != nil {
			yield(nil, err)
			return
		}
		if lease, in := r.service.locker.FromContext(ctx, of.key()); in {
			// ⚑ The lease says why if ctx is that of a run that has ended.
			yield(nil, public(cmp.Or(lease.Err(), errInside)))
			return
		}
		turns, _ := r.service.turns(of.key())
		over := false // the caller has left, or has an error, or the whole answer
		err := turns.Turn(ctx, func(ctx context.Context) error {
			lease, _ := r.service.locker.FromContext(ctx, of.key())
			for e, err := range r.Runner.Run(ctx, userID, sessionID, msg, cfg, opts...) {
				if over = over || err != nil; err != nil && ctx.Err() != nil {
					// ⚑ The cause keeps a Stop that the end of the lease follows. Err says that the Locker was closed.
					err = public(errors.Join(context.Cause(ctx), lease.Err(), err))
				}
				if !yield(e, err) {
					over = true // ⚑ no yield follows a break
					return nil
				}
			}
			over = over || ctx.Err() == nil // ⚑ an agent may end silently when ctx does
			return context.Cause(ctx)
		})
		if err != nil && !over {
			yield(nil, public(err))
		}
	}
}

// LockREST runs the requests POST …/run and …/run_sse of adkrest under the lock of their session. A busy
// session is answered with status 503 and Retry-After. The wait is that of the Options, and at most two
// thirds of the WriteTimeout of the http.Server. The Locker logs a warning if the first run that adkrest has
// answered asked this Service for nothing: adkrest may have another SessionService.
func (s *Service) LockREST(next http.Handler) http.Handler {
	var first sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of := runOf(r)
		if of.check() != nil { // adkrest refuses it, or it creates a session
			next.ServeHTTP(w, r)
			return
		}
		wait := s.opts.Wait
		if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
			if limit := server.WriteTimeout * 2 / 3; wait < 0 || wait > limit {
				wait = limit
			}
		}
		began := false
		turns, _ := s.turns(of.key())
		_ = turns.Turn(r.Context(), func(ctx context.Context) error {
			began = true
			next.ServeHTTP(w, r.WithContext(ctx))
			// ⚑ adkrest answers a run with one of these types, and refuses a request, as others do, with text.
			if kind := w.Header().Get("Content-Type"); kind != "text/event-stream" && kind != "application/json; charset=UTF-8" {
				return nil
			}
			first.Do(func() {
				lease, _ := s.locker.FromContext(ctx, of.key())
				unused := new(leased) // the lease takes it unless a call has left one
				if fencing.Attach(lease, s, func() any { return unused }) == any(unused) {
					fencing.Options(s.locker).Logger.WarnContext(ctx, "adksession: a run under LockREST has asked this Service for nothing: "+
						"make this Service the SessionService of adkrest")
				}
			})
			return nil
		}, distlock.WithWait(wait))
		if !began {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the session is busy, or its lock cannot be had: retry later", http.StatusServiceUnavailable)
		}
	})
}

// runOf returns the session of a request that runs an agent. ⚑ It reads the first value of the body, as
// adkrest does: with the same tags, the same case of names, and the last of two equal names. The body
// stays whole.
func runOf(r *http.Request) id {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/run") && !strings.HasSuffix(r.URL.Path, "/run_sse") {
		return id{}
	}
	var request struct {
		App     string `json:"appName"`
		User    string `json:"userId"`
		Session string `json:"sessionId"`
	}
	var read bytes.Buffer // ⚑ not the whole body, which may have no end
	err := json.NewDecoder(io.TeeReader(r.Body, &read)).Decode(&request)
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&read, r.Body), r.Body}
	if err != nil {
		return id{}
	}
	return id{request.App, request.User, request.Session}
}

// Stop asks the run of a session to end, in any process, and raises the session's mark. After nil, the run
// appends nothing more. The stored events stay. The context of the run ends at once if
// distlock.Options.Interruptible is set, else at the next renewal.
//
// The run fails with distlock.ErrInterrupted. Runs and Appends that wait fail so, too: repeat such an Append.
// Later ones are left alone. Without a run or a session, Stop returns nil. Inside the run, it fails with a
// *distlock.BusyError whose Self is true, and over a Redlock with errors.ErrUnsupported. After another
// error, the run may go on: repeat the call. Stop tries for 5 seconds.
func (s *Service) Stop(ctx context.Context, app, user, sessionID string) (err error) {
	of := id{app, user, sessionID}
	if err := of.check(); err != nil {
		return err
	}
	if lease, in := s.locker.FromContext(ctx, of.key()); in && lease.Err() == nil {
		return errInside
	}
	observer := fencing.Options(s.locker).Observer
	op := &distlock.Operation{Name: lockedmemory.OpStop, Backend: fencing.Backend(s.locker), Key: of.key()}
	ctx = observer.Start(ctx, op)
	defer func() { op.Err, op.Outcome = err, distlock.OutcomeOf(err); observer.End(ctx, op) }()
	var req driver.AskRequest // at first a look
	again := func(err error) bool { return errors.Is(err, distlock.ErrOutcomeUnknown) }
	_, err = retry.Do(ctx, repeatFor, again, func() error {
		asked, err := fencing.Ask(ctx, s.locker, op.Key, req)
		for err == nil && asked.State.Held && !asked.Asked {
			req.Fence, op.Blocker = asked.Fence, asked.State.Metadata
			asked, err = fencing.Ask(ctx, s.locker, op.Key, req)
		}
		if err != nil {
			return err
		}
		r, err := s.ask(ctx, nil, request{operation: opStop, id: of, token: asked.Fence})
		switch {
		case r.outcome == missing && !asked.State.Held:
			return nil
		case r.outcome != done || errors.Is(err, distlock.ErrUnavailable):
			req.Floor = r.mark + 1 // ⚑ missing: the run may create the session; stale: it has a higher token
			return fmt.Errorf("%w: %v", distlock.ErrOutcomeUnknown, err)
		}
		return err
	})
	return public(err)
}
