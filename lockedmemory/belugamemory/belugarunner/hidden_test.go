package belugarunner_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// Beluga's plugin for retries hides errors: its Runner then yields an empty event.
func TestLockRun_N_hiddenError_yieldsNoEvent(t *testing.T) {
	limit := core.NewError("model", core.ErrRateLimit, "", errAgent)
	fails := func(context.Context, string) (string, error) { return "", limit }
	yields := func(events ...string) func(context.Context, string, string) iter.Seq2[string, error] {
		return func(context.Context, string, string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for _, event := range events {
					if !yield(event, nil) {
						return
					}
				}
			}
		}
	}
	for name, test := range map[string]struct {
		run    func(context.Context, string, string) iter.Seq2[string, error] // nil: that of a Runner
		agent  answers
		get    error
		wrap   agent.Middleware
		create bool
		code   core.ErrorCode
		cause  error // nil: it is unknown
	}{
		"of an agent":               {agent: fails, wrap: belugarunner.WrapAgent, code: core.ErrRateLimit, cause: errAgent},
		"of a new session's agent":  {agent: fails, wrap: belugarunner.WrapAgent, create: true, code: core.ErrRateLimit, cause: errAgent},
		"of Get":                    {agent: echo, get: limit, code: core.ErrRateLimit, cause: errAgent},
		"unknown":                   {agent: fails, code: core.ErrInvalidInput},
		"unknown, of a new session": {agent: fails, create: true, code: core.ErrInvalidInput},
		"no Update":                 {run: yields(), code: core.ErrInvalidInput},
		"events before the Update":  {run: yields("an", "answer"), code: core.ErrInvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				seen := new(outcomes)
				p.observer = seen
				a := p.with(t, test.agent)
				a.wrap, a.hides = test.wrap, true
				run, session := test.run, p.session
				if run == nil {
					run = a.Run
				}
				if test.create {
					session = "unknown"
				}
				if test.get != nil {
					p.sessions.got = func(context.Context) error { return test.get }
				}
				var errs []error
				for event, err := range must2(belugarunner.LockRun(a.locker, run))(t.Context(), session, "q") {
					if event != "" || !p.free(t, a) {
						t.Errorf("event %q; the session is free: %t", event, p.free(t, a))
					}
					errs = append(errs, err)
				}
				p.sessions.got = nil
				if len(errs) != 1 || p.turns(t) != "" || !slices.Equal(seen.all(), []distlock.Outcome{distlock.OutcomeFailed}) {
					t.Fatalf("errors %v, want one; turns %q; outcomes %v", errs, p.turns(t), seen.all())
				}
				refusedWith(t, errs[0], test.code, cmp.Or(test.cause, errs[0]))
				if errors.Is(errs[0], core.NewError("", core.ErrNotFound, "", nil)) {
					t.Errorf("%v names the Get that comes before a Create", errs[0])
				}
			})
		})
	}
}
