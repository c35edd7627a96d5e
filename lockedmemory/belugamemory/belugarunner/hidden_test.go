package belugarunner_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// Beluga's plugin for retries hides errors: its Runner then yields an empty event.
func TestRun_N_hiddenError_yieldsNoEvent(t *testing.T) {
	limit := core.NewError("model", core.ErrRateLimit, "", errAgent)
	fails := func(context.Context, string) (string, error) { return "", limit }
	failing := func(context.Context) error { return errAgent }
	for name, test := range map[string]struct {
		agent  answers
		get    error
		plugin hooks
		create bool
		code   core.ErrorCode
		cause  error // nil: it is unknown
	}{
		"of an agent":               {agent: fails, code: core.ErrRateLimit, cause: errAgent},
		"of a new session's agent":  {agent: fails, create: true, code: core.ErrRateLimit, cause: errAgent},
		"of Get":                    {agent: echo, get: limit, code: core.ErrRateLimit, cause: errAgent},
		"unknown":                   {agent: echo, plugin: hooks{after: failing}, code: core.ErrInvalidInput},
		"unknown, of a new session": {agent: echo, plugin: hooks{before: failing}, create: true, code: core.ErrInvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, p *place) {
				seen := new(outcomes)
				p.observer = seen
				test.plugin.hides = true
				a := p.with(t, test.agent, belugarunner.Options{Plugins: []runtime.Plugin{&test.plugin}})
				session := p.session
				if test.create {
					p.session = "unknown"
				}
				if test.get != nil {
					p.sessions.got = func(context.Context) error { return test.get }
				}
				answer, errs := p.say(t.Context(), a, "q")
				p.sessions.got, p.session = nil, session
				if answer != "" || len(errs) != 1 || p.turns(t) != "" || !slices.Equal(seen.all(), []distlock.Outcome{distlock.OutcomeFailed}) {
					t.Fatalf("answer %q, errors %v, want one; turns %q; outcomes %v", answer, errs, p.turns(t), seen.all())
				}
				refusedWith(t, errs[0], test.code, cmp.Or(test.cause, errs[0]))
				if errors.Is(errs[0], core.NewError("", core.ErrNotFound, "", nil)) {
					t.Errorf("%v names the Get that comes before a Create", errs[0])
				}
			})
		})
	}
}
